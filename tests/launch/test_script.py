"""Shell scripts: never executed, what is not decidable stays unknown."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infer_doctor.host import Unavailable
from infer_doctor.launch.model import Launch
from infer_doctor.launch.script import read


def one(text: str, beside: Callable[[str], str] | None = None) -> Launch:
    (launch,) = read(text, "run.sh", beside)
    return launch


def shown(launch: Launch) -> list[str]:
    return [f"{word.text}@{word.place.line}" for word in launch.words]


def test_lines_of_words() -> None:
    text = "#!/bin/sh\n\nvllm serve m \\\n  --port 1 \\\n  --host 'a b'  # comment\n"
    assert shown(one(text)) == ["m@3", "--port@4", "1@4", "--host@5", "a b@5"]


def test_arrays_keep_the_line_of_each_word() -> None:
    text = 'A=(\n --port 1\n)\nA+=(--host h)\nvllm serve m "${A[@]}"\n'
    assert shown(one(text)) == ["m@5", "--port@2", "1@2", "--host@4", "h@4"]


def test_values_are_put_in() -> None:
    text = 'M=x\nexport E="$M/y" F=1\nOPTS="--port 1"\nvllm serve $M $OPTS "--name=$E"\n'
    launch = one(text)
    assert [word.text for word in launch.words] == ["x", "--port", "1", "--name=x/y"]
    assert [(row.name, row.value, row.place.line) for row in launch.environment] == [
        ("E", "x/y", 2),
        ("F", "1", 2),
    ]


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("vllm serve $M", "$M"),
        ("M=$(cat f)\nvllm serve $M", "$(cat f)"),
        ("if [ x ]; then M=a; else M=b; fi\nvllm serve $M", "$M"),
        ("M=a\nfor M in a b; do :; done\nvllm serve $M", "$M"),
        ("M=a\n[ -f x ] && M=b\nvllm serve $M", "$M"),
        ("read M\nvllm serve $M", "$M"),
        ('vllm serve "$1"', "$1"),
        ("vllm serve ${M%/}", "${M%/}"),
        ("M=`pwd`\nvllm serve $M", "`pwd`"),
    ],
)
def test_what_is_not_decidable(text: str, unknown: str) -> None:
    assert one(text).words[0].unknown == unknown


def test_the_same_in_both_branches_before_and_after() -> None:
    text = "M=a\nif [ x ]; then vllm serve b; fi\nvllm serve $M\n"
    first, second = read(text, "run.sh")
    assert (first.name, second.name) == ("run.sh:2", "run.sh:3")
    assert second.words[0].text == "a"
    assert second.words[0].unknown is None


def test_here_documents_and_comments_start_nothing() -> None:
    text = (
        "cat <<EOF > f\nvllm serve no\nEOF\n# vllm serve no\necho 'vllm serve no'\nvllm serve m\n"
    )
    assert shown(one(text)) == ["m@6"]


def test_here_documents_without_end_are_given_up() -> None:
    assert read("bash <<A\n" * 3000 + "vllm serve m\n", "run.sh") == []


def test_set_a_and_a_sourced_file() -> None:
    text = "set -a\n. ./engine.env\nA=1\nset +a\nB=2\nvllm serve m\n"
    launch = one(text, lambda path: "# c\nHF_HOME='/x y'\nPORT=1 # d\n")
    found = {row.name: row.value for row in launch.environment}
    assert found == {"HF_HOME": "/x y", "PORT": "1", "A": "1"}


def test_a_file_that_cannot_be_read_may_set_anything() -> None:
    def unreadable(path: str) -> str:
        raise Unavailable("no such file")

    launch = one("source conf.sh\nvllm serve m\n", unreadable)
    assert [(row.name, row.source) for row in launch.environment] == [("*", "conf.sh")]


def test_a_configuration_file_beside_it() -> None:
    launch = one("vllm serve --config c.yaml --port 1\n", lambda path: "model: m\nport: 2\n")
    assert [(key.name, key.value, key.place.line) for key in launch.config] == [
        ("model", "m", 1),
        ("port", 2, 2),
    ]
    assert one("vllm serve --config c.yaml\n").gaps == (
        "the configuration file c.yaml: was not read",
    )


def test_a_value_that_doubles_itself_is_given_up() -> None:
    text = "A=xxxxxxxx\n" + 'A="$A$A"\n' * 60 + "vllm serve $A\n"
    assert one(text).words[0].unknown is not None


def test_a_script_without_an_engine() -> None:
    assert read("#!/bin/sh\necho hello\n", "run.sh") == []
