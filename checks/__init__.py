"""One module an area, one function a problem."""

if __name__ != "infer_doctor.checks":
    raise ImportError(
        "this folder is installed as `infer_doctor.checks`: run `pip install -e .` and import that name"
    )
