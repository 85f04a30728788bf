"""Whether an image still is what was pinned, and who signed it."""

from __future__ import annotations

import json
from pathlib import Path

from kbslurm.domain.finding import Finding, caution, failed, passed
from kbslurm.images.apptainer import LOOK_S, Maker, answer_of, reason_in
from kbslurm.images.pins import LOCK, digest_of, lock_beside, read_lock


def verify(
    image: Path,
    maker: Maker | None,
    *,
    pinned: str = "",
    key: Path | None = None,
    where: str = "",
) -> list[Finding]:
    """Whether an image is what was pinned (by a site's file, else by the lock beside it) and who signed it.

    Without a maker (no container program here) signatures aren't looked at. `key`: a public key that must have signed.
    """
    if not image.exists():
        return [
            failed(
                "image",
                f"{image} isn't there",
                "kbslurm image build or kbslurm image pull makes it; see containers/README.md.",
                where=where,
            )
        ]
    found = [_digest_finding(image, pinned, where)]
    if maker is not None and not image.is_dir():
        found.append(_signature_finding(image, maker, key, where))
    elif key is not None:
        found.append(
            failed("signature", f"{image} can't carry one here", "Use a SIF, where Apptainer is.", where=where)
        )
    return found


def _digest_finding(image: Path, pinned: str, where: str) -> Finding:
    found = digest_of(image)
    wanted, by = pinned, "the site's file"
    if not wanted:
        known = read_lock(lock_beside(image)).get(image.name)
        wanted, by = (known.digest if known else ""), LOCK
    if not wanted:
        return caution(
            "image",
            f"{image} isn't pinned; it is {found}",
            f'Write image_digest = "{found}" into the site\'s file, so that a changed image is noticed.',
            where=where,
        )
    if found != wanted:
        return failed(
            "image",
            f"{image} is {found}, but {by} pins {wanted}",
            "Somebody replaced it, or it is damaged: build or pull it again, or pin the new one after a look.",
            where=where,
        )
    return passed("image", f"{image} is what {by} pins ({found[:19]}…)", where=where)


def _signature_finding(image: Path, maker: Maker, key: Path | None, where: str) -> Finding:
    words = ["--key", str(key)] if key else ["--local"]
    answer = answer_of([maker.executable, "verify", "--all", "--json", *words, str(image)], maker, LOOK_S)
    if answer.returncode == 0:
        return passed("signature", f"signed by {_signers(answer.stdout) or key}", where=where)
    said = reason_in(answer.stderr)
    if "signature not found" in said and key is None:
        return passed("signature", "carries none: its digest is what counts", where=where)
    if "unknown entity" in said and key is None:
        return caution(
            "signature",
            "is signed by a key that isn't known here",
            "Import the signer's public key (apptainer key import FILE) if you know whose it is.",
            where=where,
        )
    return failed("signature", f"{image}: {said}", "Don't use this image before you know why.", where=where)


def _signers(text: str) -> str:
    try:
        told = json.loads(text)
        signers = {(one["Signer"]["Name"], one["Signer"]["Fingerprint"]) for one in told["SignerKeys"] or ()}
    except (ValueError, KeyError, TypeError):
        return ""
    return ", ".join(f"{name} ({fingerprint})".strip() for name, fingerprint in sorted(signers))
