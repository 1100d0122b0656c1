"""Make doctor/catalog/architectures.json out of an installed vLLM's registry, without importing it.

python scripts/make_architectures.py SITE_PACKAGES/vllm > doctor/catalog/architectures.json
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
from pathlib import Path


def main() -> None:
    package = Path(sys.argv[1])
    file = package / "model_executor/models/registry.py"
    source = file.read_bytes()
    tables = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            name = ast.unparse(node.targets[0])
            keys = [key.value for key in node.value.keys if isinstance(key, ast.Constant)]
            values = [v.value if isinstance(v, ast.Constant) else None for v in node.value.values]
            tables[name] = dict(zip(keys, values, strict=False))
    models = {n for name, t in tables.items() if name.endswith("_MODELS") for n in t}
    removed = tables["_PREVIOUSLY_SUPPORTED_MODELS"]
    plugins = tables["_OOT_SUPPORTED_MODELS"]
    version = re.search(
        r"__version__ = version = ['\"]([0-9.]+)", (package / "_version.py").read_text()
    )
    json.dump(
        {
            "version": version[1] if version else None,
            "source": "vllm/model_executor/models/registry.py",
            "sha256": hashlib.sha256(source).hexdigest(),
            "known": sorted(models - removed.keys() - plugins.keys()),
            "removed": dict(sorted(removed.items())),
            "plugins": dict(sorted(plugins.items())),
        },
        sys.stdout,
        indent=0,
    )
    sys.stdout.write("\n")


main()
