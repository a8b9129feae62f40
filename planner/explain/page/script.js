"use strict";
const data = JSON.parse(document.getElementById("data").textContent);

// The timeline: the wheel zooms about the pointer, dragging moves, a double click shows the whole step again.
const timeline = document.getElementById("timeline");
if (timeline) {
  const whole = timeline.viewBox.baseVal.width;
  const total = Number(timeline.dataset.totalS) * 1e3;
  const [from, to] = document.getElementById("scale").children;
  const show = (x, width) => {
    const wide = Math.min(whole, Math.max(whole / 5000, width));
    const left = Math.min(whole - wide, Math.max(0, x));
    timeline.viewBox.baseVal.x = left;
    timeline.viewBox.baseVal.width = wide;
    from.textContent = ((left / whole) * total).toFixed(3) + " ms";
    to.textContent = (((left + wide) / whole) * total).toFixed(3) + " ms";
  };
  const at = (event) => (event.clientX - timeline.getBoundingClientRect().left) / timeline.clientWidth;
  timeline.addEventListener("wheel", (event) => {
    event.preventDefault();
    const box = timeline.viewBox.baseVal;
    const wide = box.width * (event.deltaY > 0 ? 1.25 : 0.8);
    show(box.x + at(event) * (box.width - wide), wide);
  }, { passive: false });
  timeline.addEventListener("pointermove", (event) => {
    const box = timeline.viewBox.baseVal;
    if (event.buttons) show(box.x - (event.movementX / timeline.clientWidth) * box.width, box.width);
  });
  timeline.addEventListener("dblclick", () => show(0, whole));
}

// A tensor's layout: the two dims that are split most are drawn, a block for each part.
const chooser = document.getElementById("tensor");
if (chooser) {
  const shown = 16;
  const product = (numbers) => numbers.reduce((a, b) => a * b, 1);
  const base = (axis) => data.mesh[axis] ?? data.parts[axis] ?? 1;
  const draw = () => {
    const tensor = data.tensors[chooser.value];
    const parts = tensor.shape.map((_, i) => product((tensor.axes[i] ?? []).map(base)));
    const order = parts.map((_, i) => i).sort((a, b) => parts[b] - parts[a] || tensor.shape[b] - tensor.shape[a]);
    const [first, second] = order.slice(0, 2).sort((a, b) => a - b);
    const [rows, columns] = [parts[first] ?? 1, second === undefined ? 1 : parts[second]];
    const layout = document.getElementById("layout");
    layout.replaceChildren();
    layout.style.gridTemplateColumns = `repeat(${Math.min(columns, shown)}, 1fr)`;
    for (let row = 0; row < Math.min(rows, shown); row++) {
      for (let column = 0; column < Math.min(columns, shown); column++) {
        const block = document.createElement("div");
        const spans = tensor.shape.map((size, i) => {
          const k = i === first ? row : i === second ? column : 0;
          const each = Math.ceil(size / parts[i]);
          return `${k * each}:${Math.min(size, (k + 1) * each)}`;
        });
        block.textContent = block.title = `[${spans.join(", ")}]`;
        layout.append(block);
      }
    }
    const split = tensor.shape.map((size, i) =>
      `dim ${i} of ${size}: ` + (parts[i] > 1 ? `${parts[i]} parts over ${tensor.axes[i].join("+")}` : "whole"));
    const copies = data.num_devices / product(parts);
    const cut = Math.max(rows, columns) > shown ? ` The first ${shown} parts of a dim are drawn.` : "";
    document.getElementById("said").textContent = `${split.join("; ") || "a scalar"}. A device holds ` +
      `${tensor.device_bytes.toLocaleString("en")} bytes, predicted; ${copies} devices hold each block.${cut}`;
  };
  const count = (tensor) => product(tensor.axes.flat().map(base));
  chooser.value = String(data.tensors.reduce((best, t, i) => (count(t) > count(data.tensors[best]) ? i : best), 0));
  chooser.addEventListener("change", draw);
  draw();
}
