"""What a Ray job's entrypoint is: it gets the rest from the service, proves that it is the service's, and runs it.

Ray keeps this text and its arguments where everybody with its token can read them, so nothing here is secret: the
attempt's random name, the place, the service's address, and the path of the file on this node that holds the run key.
It reaches a node as `python3 -I -c TEXT NAME PLACE URL KEY_FILE`; standard library only.
"""

import hashlib
import hmac
import http.client
import io
import os
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile

TRIES, PAUSE_S, CAP = 10, 6.0, 16 << 20


def boot(name: str, place: str, url: str, key_file: str) -> int:
    try:
        with open(key_file, encoding="ascii") as file:
            key = bytes.fromhex(file.read().strip())
    except (OSError, ValueError) as error:
        return failed(f"the run key can't be read from {key_file} on this node: {error}")
    base = f"{place} {name}"
    mac = hmac.new(hmac.digest(key, f"kbslurm calls {base}".encode(), "sha256"), f"kit {base} - ".encode(), "sha256")
    asked = urllib.request.Request(
        f"{url}/nodes/{place}/{name}/kit", headers={"X-Kbslurm-Who": "-", "X-Kbslurm-Mac": mac.hexdigest()}
    )
    for tried in range(TRIES):
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                kit, sent = answer.read(CAP), answer.headers.get("X-Kbslurm-Mac", "")
                if not answer.length:
                    break
            why = "its answer was cut short"
        except urllib.error.HTTPError as error:
            error.close()
            if error.code < 500 and error.code not in (408, 429):
                return failed(f"the service refused this node (status {error.code}); is the key in {key_file} its own?")
            why = f"it answered with status {error.code}"
        except (OSError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
        if tried == TRIES - 1:
            return failed(f"the service can't be reached at {url} from this node: {why}")
        time.sleep(PAUSE_S)
    own = hmac.digest(key, f"kbslurm kit {hashlib.sha256(kit).hexdigest()}".encode(), "sha256").hex()
    if not hmac.compare_digest(own, sent):
        return failed(f"what came from {url} isn't the service's: it doesn't have this node's key")
    with tempfile.TemporaryDirectory(prefix="kbslurm-") as folder:
        os.chmod(folder, 0o755)  # a caged process of another account reads the harness
        zipfile.ZipFile(io.BytesIO(kit)).extractall(folder)
        sys.path.insert(0, folder)
        from kbslurm.backends.ray import node_program

        return node_program.run(name, place, url, key, folder)


def failed(why: str) -> int:
    print(f"kbslurm: {why}", file=sys.stderr)
    return 6


if __name__ == "__main__":
    os.umask(0o022)
    raise SystemExit(boot(*sys.argv[1:]))
