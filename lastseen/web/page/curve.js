// The score over time, over the slider of the player and on the same scale.

import { clock, make, ticks } from "./moments.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [1000, 100];

function shape(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

export class Curve {
  constructor(place, seek) {
    Object.assign(this, { place, seek });
    place.addEventListener("click", (event) => {
      if (!this.duration || event.target.closest("button")) return;
      const area = this.plot.getBoundingClientRect();
      seek(((event.clientX - area.left) / area.width) * this.duration);
    });
  }

  clear() {
    this.place.replaceChildren();
    this.duration = 0;
    this.place.classList.remove("full");
  }

  // `choose(number)` when the n-th of the tracks is clicked; the last one is the answer unless all are guesses.
  show(curve, tracks, { isGuess, choose }) {
    this.duration = curve.duration;
    const at = (time) => (time / curve.duration) * WIDTH;
    const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    svg.setAttribute("aria-label", `Score over time, from 0 to ${clock(curve.duration)}`);
    if (curve.searched < curve.duration - 0.5) {
      const [x, width] = [at(curve.searched), WIDTH - at(curve.searched)];
      svg.append(shape("rect", { class: "unsearched", x, y: 0, width, height: HEIGHT }));
    }
    for (const y of [0, 50, 100]) svg.append(shape("line", { class: "grid", x1: 0, x2: WIDTH, y1: y, y2: y }));
    for (const line of this.#lines(curve)) {
      const points = line.map(([time, score]) => `${at(time).toFixed(1)},${(HEIGHT * (1 - score)).toFixed(2)}`);
      svg.append(shape("polyline", { class: "score", points: points.join(" ") }));
    }
    for (const { time, score } of curve.peaks) {
      // A line of no length with round ends is a dot that stays round when the drawing is stretched.
      svg.append(shape("path", { class: "peak", d: `M${at(time).toFixed(1)} ${(HEIGHT * (1 - score)).toFixed(2)}h0` }));
    }
    this.head = shape("line", { class: "head", x1: 0, x2: 0, y1: 0, y2: HEIGHT });
    svg.append(this.head);
    this.plot = make("div", { className: "plot" }, svg);
    tracks.forEach((track, number) => {
      const isLast = number === tracks.length - 1;
      const seen = isGuess ? "Best guess" : isLast ? "Last seen" : "Seen";
      const band = make("button", {
        type: "button",
        className: isGuess ? "band guess" : isLast ? "band chosen" : "band",
        title: `${seen} ${clock(track.start)} to ${clock(track.end)}, score ${track.score.toFixed(2)}`,
        onclick: () => choose(number),
      });
      band.setAttribute("aria-label", band.title);
      band.style.left = `${(100 * track.start) / curve.duration}%`;
      band.style.width = `${(100 * (track.end + 1 / track.fps - track.start)) / curve.duration}%`;
      this.plot.append(band);
    });
    const most = this.place.clientWidth < 500 ? 5 : 9;
    for (const time of ticks(curve.duration, most)) {
      const label = make("span", { className: "tick-label", textContent: clock(time).replace(/\.0$/, "") });
      label.style.left = `${(100 * time) / curve.duration}%`;
      this.plot.append(label);
    }
    this.place.replaceChildren(this.plot);
    this.place.classList.add("full");
  }

  move(time) {
    if (!this.duration || !this.head) return;
    const x = ((time / this.duration) * WIDTH).toFixed(1);
    this.head.setAttribute("x1", x);
    this.head.setAttribute("x2", x);
  }

  // Unbroken runs of scores: the line stops where nobody looked closely.
  #lines({ times, scores }) {
    const lines = [[]];
    times.forEach((time, i) => {
      if (scores[i] === null) lines.push([]);
      else lines.at(-1).push([time, scores[i]]);
    });
    return lines.filter((line) => line.length);
  }
}
