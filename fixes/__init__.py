"""Functions that make a Fix out of facts."""

if __name__ != "infer_doctor.fixes":
    raise ImportError(
        "this folder is installed as `infer_doctor.fixes`: run `pip install -e .` and import that name"
    )
