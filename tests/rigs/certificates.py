"""Certificates made by openssl: valid, expired, for another name, by nobody who is trusted."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

CONFIG = """
[ca]
default_ca = one
[one]
new_certs_dir = {folder}
database = {folder}/index.txt
serial = {folder}/serial
default_md = sha256
policy = any
copy_extensions = copy
[any]
commonName = supplied
"""


def _openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)


@dataclass
class Authority:
    """Signs in its own folder; `trust` is what SSL_CERT_FILE names to trust it."""

    folder: Path

    @classmethod
    def begin(cls, folder: Path) -> Authority:
        folder.mkdir(exist_ok=True)
        (folder / "index.txt").write_text("")
        (folder / "serial").write_text("1000\n")
        (folder / "ca.cnf").write_text(CONFIG.format(folder=folder))
        words = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=Test Root"]
        _openssl("req", *words, "-keyout", f"{folder}/ca.key", "-out", f"{folder}/ca.pem")
        return cls(folder)

    @property
    def trust(self) -> str:
        return f"{self.folder}/ca.pem"

    def make(
        self, name: str, alternative: str, begins: str = "", ends: str = ""
    ) -> tuple[str, str]:
        """Files of a certificate and its key; times as YYYYMMDDHHMMSSZ."""
        base = self.folder / name
        _openssl(
            *("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"),
            *("-addext", f"subjectAltName={alternative}"),
            *("-keyout", f"{base}.key", "-out", f"{base}.csr"),
        )
        dates = ["-startdate", begins, "-enddate", ends] if begins else ["-days", "20"]
        _openssl(
            *("ca", "-batch", "-notext", "-config", f"{self.folder}/ca.cnf"),
            *("-cert", self.trust, "-keyfile", f"{self.folder}/ca.key"),
            *("-in", f"{base}.csr", "-out", f"{base}.pem", *dates),
        )
        return f"{base}.pem", f"{base}.key"
