"""Poll each given address for up to a minute until it returns 200, or 401 for a report without a token.

TRANCHE_CA names the file with the CA certificates for https addresses.
"""

import os
import ssl
import sys
import time
import urllib.error
import urllib.request

SECONDS = 60
PAUSE = 2


def answer(url: str) -> int:
    """Return the status of a GET, or of a POST to the report API; 0 without a response."""
    try:
        body = b"{}" if url.endswith("/progress") else None
        trusted = ssl.create_default_context(cafile=os.environ["TRANCHE_CA"]) if url.startswith("https:") else None
        # A proxy of the environment, as a webhook may set it, does not reach Services.
        direct = urllib.request.ProxyHandler({})
        opener = urllib.request.build_opener(direct, urllib.request.HTTPSHandler(context=trusted))
        with opener.open(url, body, timeout=5) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def main() -> None:
    """Exit with 1 at the first address that does not respond as expected in time."""
    deadline = time.monotonic() + SECONDS
    for url in sys.argv[1:]:
        wanted = 401 if url.endswith("/progress") else 200
        while (status := answer(url)) != wanted:
            if time.monotonic() > deadline:
                sys.exit(f"{url}: {status or 'no response'}, expected {wanted}")
            time.sleep(PAUSE)
        sys.stdout.write(f"{url}: {status}\n")


main()
