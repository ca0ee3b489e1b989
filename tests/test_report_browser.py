"""The report in headless Chromium: no console errors, tabs and viewer respond, the picture is not blank.

pytest -m browser
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from real_structures import DATA
from report_runs import belong_together, make_interrupted, make_killed, make_run

from peptidyn.analysis.report import write_report
from peptidyn.cli import main
from peptidyn.core.sealed_files import read_sealed_text, write_sealed_text

pytestmark = pytest.mark.browser

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --use-gl=angle --use-angle=swiftshader --enable-unsafe-swiftshader "
    "--window-size=1100,900"
)


def _program(*names):
    return next((path for name in names if (path := shutil.which(name))), None)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    program, driver = _program("chromium", "chromium-browser", "google-chrome"), _program("chromedriver")
    if program is None or driver is None:
        absent = "no chromium with chromedriver on this machine (Debian: apt-get install chromium chromium-driver)"
        if os.environ.get("PEPTIDYN_NEEDS_BROWSER"):
            pytest.fail(absent)
        pytest.skip(absent)
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in FLAGS.split():
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    window = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield window
    window.quit()


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Reports of a finished, an interrupted and a killed run."""
    folder = tmp_path_factory.mktemp("reports")
    finished = make_run(DATA / "ala10-helix.pdb", folder / "finished", "--ensemble", "ghmc")
    return {
        "finished": write_report(finished),
        "interrupted": write_report(make_interrupted(finished, folder / "interrupted")),
        "killed": write_report(make_killed(finished, folder / "killed", 11)),
    }


def click(browser, key):
    from selenium.webdriver.common.by import By

    browser.find_element(By.ID, key).click()


def pixels(png):
    from matplotlib import image

    return np.round(255 * image.imread(io.BytesIO(png))[..., :3]).astype(int)


def errors(browser):
    """Console messages that are errors; drivers also write remarks about their speed."""
    return [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def wait_for(browser, expression):
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 30).until(lambda b: b.execute_script(f"return {expression}"))


def viewer_picture(browser):
    from selenium.webdriver.common.by import By

    return pixels(browser.find_element(By.ID, "viewer").screenshot_as_png)


@pytest.mark.parametrize("kind", ["finished", "interrupted", "killed"])
def test_tabs_and_viewer(browser, reports, kind):
    browser.get(Path(reports[kind]).resolve().as_uri())
    for key in ("overview", "energy", "torsions", "structure", "fixman", "step", "view"):
        click(browser, f"tab-{key}")
        shown = browser.execute_script(
            "return [...document.querySelectorAll('[role=tabpanel]')].filter(p => !p.hidden).map(p => p.id)"
        )
        assert shown == [f"panel-{key}"]
        broken = "[...document.images].filter(i => i.offsetParent && !(i.complete && i.naturalWidth)).length"
        assert browser.execute_script(f"return {broken}") == 0
    wait_for(browser, "window.peptidynView !== undefined")
    assert browser.execute_script("return peptidynView.model().selectedAtoms({}).length") == 112
    first = viewer_picture(browser)
    # neither blank nor one colour: a molecule covers a fair part, before a white ground
    assert (first < 250).any(axis=2).mean() > 0.02 and (first > 250).all(axis=2).mean() > 0.3
    assert len(np.unique(first.reshape(-1, 3), axis=0)) > 100
    last = 10 if kind == "killed" else 14
    assert slide(browser, str(last)).startswith(f"frame {last + 1} of {last + 1}")
    assert errors(browser) == []


def test_exchange(browser, tmp_path):
    """The report of replica exchange: tabs, pictures, and the view of the lowest temperature."""
    folder = tmp_path / "exchange"
    quick = ("--replicas", "2", "--iterations", "4", "--interval", "10", "--warm-up", "0", "--platform", "Reference")
    command = ["exchange", str(DATA / "ala10-helix.pdb"), "--solvent", "vacuum", "--seed", "3", *quick, "-q"]
    assert main([*command, "-o", str(folder)]) == 0
    browser.get(write_report(folder).resolve().as_uri())
    for key in ("overview", "exchange", "energy", "melting", "structure", "view"):
        click(browser, f"tab-{key}")
        broken = "[...document.images].filter(i => i.offsetParent && !(i.complete && i.naturalWidth)).length"
        assert browser.execute_script(f"return {broken}") == 0
    wait_for(browser, "window.peptidynView !== undefined")
    picture = viewer_picture(browser)
    assert (picture < 250).any(axis=2).mean() > 0.02 and (picture > 250).all(axis=2).mean() > 0.3
    assert slide(browser, "3") == "frame 4 of 4, iteration 3"
    assert errors(browser) == []


def slide(browser, frame):
    browser.execute_script(
        "const s = document.getElementById('frame'); s.value = arguments[0]; s.dispatchEvent(new Event('input'))", frame
    )
    return browser.execute_script("return document.getElementById('frame-label').textContent")


def test_viewer_responds(browser, reports):
    browser.get(Path(reports["finished"]).resolve().as_uri())
    click(browser, "tab-view")
    wait_for(browser, "window.peptidynView !== undefined")
    first = viewer_picture(browser)
    slide(browser, "14")
    moved = viewer_picture(browser)
    assert (np.abs(moved - first).max(axis=2) > 40).mean() > 1e-3
    browser.execute_script(
        "const s = document.getElementById('style'); s.value = 'spheres'; s.dispatchEvent(new Event('change'))"
    )
    spheres = viewer_picture(browser)
    assert (spheres < 250).any(axis=2).mean() > 1.3 * (moved < 250).any(axis=2).mean()
    browser.execute_script(
        "const s = document.getElementById('style'); s.value = 'cartoon'; s.dispatchEvent(new Event('change'))"
    )
    slide(browser, "0")
    click(browser, "play")
    wait_for(browser, "Number(document.getElementById('frame').value) >= 3")
    click(browser, "play")
    assert browser.execute_script("return document.getElementById('play').textContent") == "Play"
    assert errors(browser) == []


def test_keyboard_moves_between_tabs(browser, reports):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    browser.get(Path(reports["finished"]).resolve().as_uri())
    browser.find_element(By.ID, "tab-overview").send_keys(Keys.ARROW_RIGHT)
    assert browser.find_element(By.ID, "tab-energy").get_attribute("aria-selected") == "true"
    assert browser.switch_to.active_element.get_attribute("id") == "tab-energy"


def test_html_in_names_is_not_run(browser, tmp_path):
    evil = '</script><script>window.hacked = 1</script><img src=x onerror="window.hacked = 1">'
    folder = make_run(DATA / "ala1.pdb", tmp_path / "evil")
    settings, atoms = (read_sealed_text(folder / name) for name in ("run.toml", "topology.cif"))
    settings = re.sub("^file = .*$", lambda _: f"file = {json.dumps(evil)}", settings, flags=re.M)
    write_sealed_text(folder / "run.toml", settings)
    write_sealed_text(folder / "topology.cif", atoms.replace("ACE", "<i>"))
    belong_together(folder)
    browser.get(write_report(folder).resolve().as_uri())
    click(browser, "tab-view")
    wait_for(browser, "window.peptidynView !== undefined")
    assert browser.execute_script("return window.hacked") is None
    assert evil in browser.find_element("tag name", "body").get_property("textContent")
    assert errors(browser) == []
