# SPDX-License-Identifier: Apache-2.0
"""The SPDX 2.3 document of a binary: sbom.py SOURCES.txt VERSION EPOCH BINARY OUT.json

What it is made of: this project, the libraries of sources.txt, and musl.  Needs no package; the same input gives the
same bytes.
"""
import hashlib
import json
import os
import sys
import time

sources, version, epoch, binary, out = sys.argv[1:6]
name = os.path.basename(out).removesuffix(".spdx.json")
with open(binary, "rb") as file:
    data = file.read()
sha1, sha256 = hashlib.sha1(data).hexdigest(), hashlib.sha256(data).hexdigest()

# Name, version, licence, home, other fields.
components = [("musl", "NOASSERTION", "MIT", "https://musl.libc.org", {})]
with open(sources) as file:
    for line in file:
        if not line.startswith("#"):
            package, package_version, dsc, licence, home = line.split()
            purl = f"pkg:deb/debian/{package}@{package_version.replace(':', '%3A').replace('+', '%2B')}?arch=source&distro=bookworm"
            components.append((package, package_version, licence, home, {
                "sourceInfo": f"Debian source package, SHA-256 of the .dsc {dsc}",
                "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                                  "referenceLocator": purl}]}))


def package(name, version, licence, home, more):
    return {"SPDXID": f"SPDXRef-{name}", "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False, "homepage": home, "licenseConcluded": licence, "licenseDeclared": licence,
            "copyrightText": "NOASSERTION", **more}


def relation(a, kind, b):
    return {"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b}


program = package("fp8q", version, "Apache-2.0", "NONE", {})
del program["homepage"]
document = {
    "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": name,
    "documentNamespace": f"urn:fp8q:{name}:{sha256}",
    "creationInfo": {"created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(epoch))),
                     "creators": [f"Tool: fp8q-sbom-{version}"]},
    "packages": [program] + [package(*c) for c in components],
    "files": [{"SPDXID": "SPDXRef-binary", "fileName": "./bin/fp8q", "fileTypes": ["BINARY"],
               "checksums": [{"algorithm": "SHA1", "checksumValue": sha1},
                             {"algorithm": "SHA256", "checksumValue": sha256}],
               "licenseConcluded": "NOASSERTION", "licenseInfoInFiles": ["NOASSERTION"], "copyrightText": "NOASSERTION"}],
    "relationships": [relation("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-fp8q"),
                      relation("SPDXRef-binary", "GENERATED_FROM", "SPDXRef-fp8q")]
    + [relation("SPDXRef-fp8q", "STATIC_LINK", f"SPDXRef-{c[0]}") for c in components],
}
with open(out, "w") as file:
    json.dump(document, file, indent=2)
    file.write("\n")
