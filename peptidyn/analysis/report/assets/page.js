"use strict";
// Tabs, and the 3-D view of the trajectory. Everything comes from this file; nothing is loaded.
(function () {
  const tabs = Array.from(document.querySelectorAll('[role="tab"]'));
  let startView = null;

  function show(tab) {
    for (const one of tabs) {
      const chosen = one === tab;
      one.setAttribute("aria-selected", String(chosen));
      one.tabIndex = chosen ? 0 : -1;
      document.getElementById(one.getAttribute("aria-controls")).hidden = !chosen;
    }
    if (tab.id === "tab-view" && startView) startView();
  }

  tabs.forEach((tab, index) => {
    tab.addEventListener("click", () => show(tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs[(index + step + tabs.length) % tabs.length];
      next.focus();
      show(next);
    });
  });
  show(tabs[0]);

  const source = document.getElementById("view-data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const bytes = Uint8Array.from(atob(data.frames), (c) => c.charCodeAt(0));
  const packed = new Int16Array(bytes.buffer);
  const count = data.times.length;
  const slider = document.getElementById("frame");
  const label = document.getElementById("frame-label");
  const play = document.getElementById("play");
  const style = document.getElementById("style");
  const spin = document.getElementById("spin");
  const styles = {
    sticks: { stick: { radius: 0.14 } },
    both: { cartoon: { color: "#6f9bc4" }, stick: { radius: 0.1 } },
    cartoon: { cartoon: { color: "#6f9bc4" } },
    spheres: { sphere: {} },
  };
  let viewer = null;
  let model = null;
  let timer = null;

  function positions(frame) {
    const list = [];
    let at = 3 * data.atoms * frame;
    for (let i = 0; i < data.atoms; i++, at += 3) {
      list.push([packed[at] * data.scale, packed[at + 1] * data.scale, packed[at + 2] * data.scale]);
    }
    return list;
  }

  function draw() {
    const frame = Number(slider.value);
    model.setCoordinates([positions(frame)], "array");
    model.setFrame(0);
    model.setStyle({}, styles[style.value]);
    viewer.render();
    label.textContent = `frame ${frame + 1} of ${count}, ${data.before}${data.times[frame]}${data.after}`;
  }

  function pause() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  }

  function toggle() {
    if (timer) return pause();
    play.textContent = "Pause";
    timer = setInterval(() => {
      slider.value = String((Number(slider.value) + 1) % count);
      draw();
    }, 80);
  }

  startView = function () {
    if (viewer) return;
    try {
      viewer = $3Dmol.createViewer("viewer", { backgroundColor: "white" });
    } catch (error) {
      viewer = null;
    }
    if (!viewer) {
      document.getElementById("viewer").textContent = "This browser shows no 3-D pictures: WebGL is switched off.";
      return;
    }
    model = viewer.addModel(data.pdb, "pdb", { keepH: true });
    model.setStyle({}, styles[style.value]);
    viewer.zoomTo();
    draw();
    slider.addEventListener("input", () => { pause(); draw(); });
    style.addEventListener("change", draw);
    play.addEventListener("click", toggle);
    spin.addEventListener("change", () => viewer.spin(spin.checked ? "y" : false));
    window.peptidynView = { viewer: viewer, model: () => model };
  };
})();
