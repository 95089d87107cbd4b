"""The report at the shell: where it writes, what it says of trouble, and the README's figures."""

import json

import pytest

from analysis.__main__ import main
from analysis.report.question import Question
from results.schema import Case
from results.store import load
from tests.analysis.made_up import slower
from tests.analysis.page import Page


def broken(data):
    raise ZeroDivisionError("<b>no</b>")


def test_a_view_that_raises_costs_its_own_question_only(
    synthetic_run, tmp_path, one_question, capsys
):
    one_question.insert(0, Question(3, "What breaks?", ("axpy",), broken))
    assert main(["report", str(synthetic_run), "--output", str(tmp_path)]) == 4
    error = capsys.readouterr().err
    assert "ZeroDivisionError" in error
    assert "please report it: What breaks?" in error
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "This question could not be answered: ZeroDivisionError: &lt;b&gt;no&lt;/b&gt;" in text
    assert "Why 256 threads" in text
    Page(text)


def incomplete(data):
    raise ModuleNotFoundError("no such module", name="not_installed")


def test_a_package_that_is_not_installed_is_told_once(
    synthetic_run, tmp_path, one_question, capsys
):
    one_question.insert(0, Question(3, "What breaks?", ("axpy",), incomplete))
    assert main(["report", str(synthetic_run), "--output", str(tmp_path)]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert "has no package 'not_installed'" in line


def test_command_writes_where_told(synthetic_run, tmp_path, one_question, capsys):
    assert main(["report", str(synthetic_run), "--output", str(tmp_path / "a" / "b")]) == 0
    assert (tmp_path / "a" / "b" / "index.html").is_file()
    assert "index.html (0." in capsys.readouterr().out


def test_command_says_what_is_not_whole(record, tmp_path, capsys):
    run = record([Case("other", "kernel", {"n": 1}, "ok")], end=False)
    assert main(["report", str(run), "--output", str(tmp_path / "r")]) == 2
    assert "not whole: 0-axpy.jsonl" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv", [[], ["missing"], ["--check"], ["--readme", "a", "b"], ["--readme", "missing"]]
)
def test_command_mistakes_are_one_line(argv, capsys):
    assert main(["report", *argv]) == 3
    assert capsys.readouterr().err.count("\n") == 1


def test_an_output_that_is_a_file_is_one_line(synthetic_run, tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    assert main(["report", str(synthetic_run), "--output", str(tmp_path / "file")]) == 3
    assert "name another folder with --output" in capsys.readouterr().err


def test_readme_figures_are_checked_by_their_data(synthetic_run, record, tmp_path, monkeypatch):
    monkeypatch.setattr("analysis.report_command.FIGURES", tmp_path)
    check = ["report", "--readme", "--check", str(synthetic_run)]
    assert main(check) == 2
    assert main(["report", "--readme", str(synthetic_run)]) == 0
    digests = json.loads((tmp_path / "digests.json").read_text())
    assert set(digests) == {"bandwidth-by-block"}
    assert main(check) == 0
    other = record([slower(c, 1.01) for c in load(synthetic_run).files[0].cases if c.samples])
    assert main(["report", "--readme", "--check", str(other)]) == 2
    (tmp_path / "bandwidth-by-block.png").unlink()
    assert main(check) == 2
