"""What people expect of a command line: help with examples, -q and -v, colours on terminals only, shell completion."""

from __future__ import annotations

import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import fields

import pytest
from real_structures import DATA

from peptidyn.cli import main, make_parser
from peptidyn.cli.completion import SHELLS
from peptidyn.cli.options import name_flags
from peptidyn.cli.simulations import run_arguments
from peptidyn.runs.settings import ExchangeSettings, RunSettings


def subcommands():
    (action,) = [a for a in make_parser()._actions if hasattr(a, "choices") and isinstance(a.choices, dict)]
    return action.choices


@pytest.mark.parametrize("name", sorted(subcommands()))
def test_help_has_examples_that_parse(name):
    text = subcommands()[name].format_help()
    examples = re.findall(rf"^  (peptidyn {name}\b.*)$", text, flags=re.M)
    assert examples, text
    for example in examples:
        make_parser().parse_args(shlex.split(example.split(" > ")[0])[1:])


@pytest.mark.parametrize(("command", "settings"), [("run", RunSettings), ("exchange", ExchangeSettings)])
def test_options_that_are_not_given_leave_settings_alone(command, settings):
    """Those of a settings file and of a run that is resumed hold then."""
    options = make_parser().parse_args([command, "x.pdb"])
    arguments, names = run_arguments(options, settings), {field.name for field in fields(settings)}
    assert {name: value for name, value in arguments.items() if name in names} == {"file": "x.pdb"}


def test_general_help_names_every_command(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    for name in subcommands():
        assert re.search(rf"^    {name}\b", text, flags=re.M), name
    for example in re.findall(r"^  (peptidyn .*)$", text, flags=re.M):
        make_parser().parse_args(shlex.split(example)[1:])


def test_quiet_and_verbose(capsys, tmp_path):
    assert main(["build", "AG", "-q", "-o", str(tmp_path / "ag.pdb")]) == 0
    assert capsys.readouterr() == ("", "")
    assert main(["inspect", "-q", str(DATA / "ala1.pdb")]) == 0
    assert capsys.readouterr() == ("", "")
    assert main(["build", "AX", "-v", "-o", str(tmp_path / "ax.pdb")]) == 2
    error = capsys.readouterr().err
    assert "openmm 8" in error and "Traceback" in error and re.search(r"\d s$", error.strip())
    assert main(["build", "AX", "-o", str(tmp_path / "ax.pdb")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_flags_stand_for_arguments():
    options = make_parser().parse_args(["run", "x.pdb"])
    message = "give folder=, resume=True, hydrogen_mass=3.0, select='protein' or select='resid 1 to 3', not other=True"
    expected = "give -o, --resume, --hydrogen-mass 3.0, --select protein or --select 'resid 1 to 3', not other=True"
    assert name_flags(message, options) == expected
    assert name_flags("e.g. parameters=['a.rtf', 'b.par']", options) == "e.g. --parameters a.rtf b.par"
    assert name_flags(message, make_parser().parse_args(["completion", "bash"])) == message
    message = "complete it with load_structure(file, add_hydrogens=True), or remove it"
    assert name_flags(message, options) == message  # peptidyn run does so by itself
    inspecting = make_parser().parse_args(["inspect", "x.pdb"])
    assert name_flags(message, inspecting) == "complete it with --add-hydrogens, or remove it"


def _on_terminal(environment):
    """Return what a failing command prints when its standard error is a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "peptidyn", "build", "AX", "-o", "x.pdb"]
    process = subprocess.run(command, stderr=theirs, stdout=subprocess.PIPE, env=environment)
    os.close(theirs)
    text = os.read(ours, 10_000).decode()
    os.close(ours)
    assert process.returncode == 2
    return text


def test_colours_on_terminals_only(capsys):
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm"}
    assert _on_terminal(environment).startswith("\033[1;31mpeptidyn:\033[0m residue 2")
    assert "\033" not in _on_terminal(environment | {"NO_COLOR": "1"})
    main(["build", "AX", "-o", "x.pdb"])
    assert "\033" not in capsys.readouterr().err


@pytest.mark.parametrize("shell", SHELLS)
def test_completion(shell, capsys, tmp_path):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("inspect", "timestep", "completion"):
        assert word in script
    if shutil.which(shell):
        path = tmp_path / "script"
        path.write_text(script)
        subprocess.run([shell, "-n", str(path)], check=True)


def test_completion_in_bash(capsys, tmp_path):
    if shutil.which("bash") is None:
        pytest.skip("there is no bash here")
    main(["completion", "bash"])
    path = tmp_path / "script"
    path.write_text(capsys.readouterr().out)
    ask = f"source {path}; COMP_WORDS=(peptidyn run --time); COMP_CWORD=2; _shtab_peptidyn; echo ${{COMPREPLY[@]}}"
    answer = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["--time", "--timestep"]


def test_completion_without_shtab(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert 'pip install "peptidyn[completion]"' in capsys.readouterr().err
