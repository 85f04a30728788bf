"""Whether an image still matches its pin, and who signed it."""

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
    """Check an image against its pin (from a site's file, else the lock next to it) and its signature.

    Without a maker (no container program here) signatures aren't checked. `key`: a public key that must have signed it.
    """
    if not image.exists():
        return [
            failed(
                "image",
                f"{image} doesn't exist",
                "kbslurm image build or kbslurm image pull makes it; see containers/README.md.",
                where=where,
            )
        ]
    found = [_digest_finding(image, pinned, where)]
    if maker is not None and not image.is_dir():
        found.append(_signature_finding(image, maker, key, where))
    elif key is not None:
        found.append(
            failed("signature", f"{image} can't have one here", "Use a SIF on a machine with Apptainer.", where=where)
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
            f"{image} isn't pinned; its digest is {found}",
            f'Write image_digest = "{found}" into the site\'s file, to detect changes.',
            where=where,
        )
    if found != wanted:
        return failed(
            "image",
            f"{image} is {found}, but {by} pins {wanted}",
            "It was replaced or is damaged: build or pull it again, or review the new one and pin it.",
            where=where,
        )
    return passed("image", f"{image} matches the pin in {by} ({found[:19]}…)", where=where)


def _signature_finding(image: Path, maker: Maker, key: Path | None, where: str) -> Finding:
    words = ["--key", str(key)] if key else ["--local"]
    answer = answer_of([maker.executable, "verify", "--all", "--json", *words, str(image)], maker, LOOK_S)
    if answer.returncode == 0:
        return passed("signature", f"signed by {_signers(answer.stdout) or key}", where=where)
    said = reason_in(answer.stderr)
    if "signature not found" in said and key is None:
        return passed("signature", "has none; only its digest is checked", where=where)
    if "unknown entity" in said and key is None:
        return caution(
            "signature",
            "is signed by an unknown key",
            "Import the signer's public key (apptainer key import FILE) if you trust it.",
            where=where,
        )
    return failed("signature", f"{image}: {said}", "Don't use this image until you know why.", where=where)


def _signers(text: str) -> str:
    try:
        told = json.loads(text)
        signers = {(one["Signer"]["Name"], one["Signer"]["Fingerprint"]) for one in told["SignerKeys"] or ()}
    except (ValueError, KeyError, TypeError):
        return ""
    return ", ".join(f"{name} ({fingerprint})".strip() for name, fingerprint in sorted(signers))
