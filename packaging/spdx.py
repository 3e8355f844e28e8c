"""spdx.py VERSION FILE...: what a release consists of, as SPDX 2.3 in JSON on standard output.

The packages hold no code but this repository's. The libraries need the C library only, the programs also libstdc++ and
libzstd.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path

NEEDED = {
    "libc6": "LGPL-2.1-or-later",
    "libstdc++6": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libzstd1": "BSD-3-Clause",
}


def spdx(version: str, files: list[Path], made: float) -> dict[str, object]:
    listed = [
        {
            "SPDXID": f"SPDXRef-File-{number}",
            "fileName": f"./{file.name}",
            "checksums": [
                {"algorithm": kind.upper(), "checksumValue": hashlib.new(kind, file.read_bytes()).hexdigest()}
                for kind in ("sha1", "sha256")  # SPDX wants the first
            ],
            "licenseConcluded": "MIT",
            "copyrightText": "NOASSERTION",
        }
        for number, file in enumerate(files)
    ]
    digest = hashlib.sha256(json.dumps(listed).encode()).hexdigest()

    def identity(name: str) -> str:
        return f"SPDXRef-Package-{name.replace('+', '-plus')}"  # SPDX allows letters, digits, dots and hyphens

    def package(name: str, version: str, licence: str) -> dict[str, object]:
        return {
            "SPDXID": identity(name),
            "name": name,
            "versionInfo": version,
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False,
            "licenseConcluded": licence,
            "licenseDeclared": licence,
            "copyrightText": "NOASSERTION",
        }

    needed = [package(name, "NOASSERTION", licence) for name, licence in NEEDED.items()]
    related = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Package-freestone")]
    related += [("SPDXRef-Package-freestone", "DEPENDS_ON", identity(name)) for name in NEEDED]
    related += [(str(file["SPDXID"]), "GENERATED_FROM", "SPDXRef-Package-freestone") for file in listed]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"freestone-{version}",
        "documentNamespace": f"urn:sha256:{digest}",
        "creationInfo": {
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(made)),
            "creators": ["Tool: freestone-spdx.py"],
        },
        "packages": [package("freestone", version, "MIT"), *needed],
        "files": listed,
        "relationships": [
            {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
            for one, kind, other in related
        ],
    }


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: spdx.py VERSION FILE...")
    made = float(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    json.dump(spdx(sys.argv[1], [Path(name) for name in sys.argv[2:]], made), sys.stdout, indent=1)
    print()
