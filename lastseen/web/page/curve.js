// The score over time, over the slider of the player and on the same scale, with a picture of each sighting.

import { boxedFrame, shape } from "./frame.js";
import { clock, make, middleOf, ticks } from "./moments.js";

const [WIDTH, HEIGHT] = [1000, 100];
const GAP = 6; // pixels between two pictures

export class Curve {
  constructor(place, seek) {
    Object.assign(this, { place, seek });
    this.bands = [];
    place.addEventListener("click", (event) => {
      if (!this.duration || event.target.closest("button")) return;
      const area = this.plot.getBoundingClientRect();
      seek(((event.clientX - area.left) / area.width) * this.duration);
    });
    new ResizeObserver(() => {
      this.#label();
      this.#spread();
    }).observe(place);
  }

  clear() {
    this.place.replaceChildren();
    this.duration = 0;
    this.bands = [];
    this.place.classList.remove("full");
  }

  // `time` is shown; `choose(track)` when one of the tracks is clicked. All of them are guesses, or none.
  show(seen, tracks, { isGuess, time, choose }) {
    const { curve } = seen;
    this.duration = curve.duration;
    const svg = this.#drawing(curve, tracks.length ? curve.peaks : []);
    this.plot = make("div", { className: "plot" }, svg);
    this.bands = tracks.map((track, number) => this.#band(seen, track, { isGuess, isLast: number === tracks.length - 1, choose }));
    this.plot.append(...this.bands.map(({ band }) => band));
    this.most = 0;
    this.place.replaceChildren(this.plot);
    this.place.classList.add("full");
    this.move(time);
    this.#label();
    this.#spread();
  }

  // Round times under the curve, as many as have room.
  #label() {
    const most = this.place.clientWidth < 500 ? 5 : 9;
    if (!this.duration || most === this.most) return;
    this.most = most;
    for (const label of this.plot.querySelectorAll(".tick-label")) label.remove();
    for (const time of ticks(this.duration, most)) {
      const label = make("span", { className: "tick-label", textContent: clock(time).replace(/\.0$/, "") });
      label.style.left = this.#place(time);
      this.plot.append(label);
    }
  }

  mark(chosen) {
    for (const { band, track } of this.bands) {
      band.classList.toggle("chosen", track === chosen);
      band.setAttribute("aria-current", String(track === chosen));
    }
    this.#spread();
  }

  move(time) {
    if (!this.duration || !this.head) return;
    const x = ((time / this.duration) * WIDTH).toFixed(1);
    this.head.setAttribute("x1", x);
    this.head.setAttribute("x2", x);
  }

  #place(time) {
    return `${(100 * time) / this.duration}%`;
  }

  #drawing(curve, peaks) {
    const at = (time) => (time / curve.duration) * WIDTH;
    const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    svg.setAttribute("aria-label", `Score over time, from 0 to ${clock(curve.duration)}`);
    if (curve.searched < curve.duration - 0.5) {
      const [x, width] = [at(curve.searched), WIDTH - at(curve.searched)];
      svg.append(shape("rect", { class: "unsearched", x, y: 0, width, height: HEIGHT }));
    }
    for (const y of [0, 50, 100]) svg.append(shape("line", { class: "grid", x1: 0, x2: WIDTH, y1: y, y2: y }));
    for (const line of linesOf(curve)) {
      const points = line.map(([time, score]) => `${at(time).toFixed(1)},${(HEIGHT * (1 - score)).toFixed(2)}`);
      svg.append(shape("polyline", { class: "score", points: points.join(" ") }));
    }
    for (const { time, score } of peaks) {
      // A line of no length with round ends is a dot that stays round when the drawing is stretched.
      svg.append(shape("path", { class: "peak", d: `M${at(time).toFixed(1)} ${(HEIGHT * (1 - score)).toFixed(2)}h0` }));
    }
    this.head = shape("line", { class: "head", x1: 0, x2: 0, y1: 0, y2: HEIGHT });
    svg.append(this.head);
    return svg;
  }

  #band(seen, track, { isGuess, isLast, choose }) {
    const what = isGuess ? "Best guess" : isLast ? "Last seen" : "Seen";
    const band = make("button", {
      type: "button",
      className: isGuess ? "band guess" : "band",
      title: `${what} ${clock(track.start)} to ${clock(track.end)}, score ${track.score.toFixed(2)}`,
      onclick: () => choose(track),
    });
    band.setAttribute("aria-label", band.title);
    band.style.left = this.#place(track.start);
    band.style.width = this.#place(track.end + 1 / track.fps - track.start);
    const picture = boxedFrame(seen, track, middleOf(track), { width: 160, isGuess });
    picture.classList.add("small");
    band.append(picture);
    return { band, picture, track, middle: (track.start + track.end) / 2 };
  }

  // Each picture over its sighting, moved aside where they would cover each other; what then has no room is hidden,
  // the chosen one and the latest last.
  #spread() {
    if (!this.bands.length || !this.plot) return;
    const area = this.plot.getBoundingClientRect();
    const width = this.bands[0].picture.offsetWidth || this.bands.find(({ picture }) => picture.offsetWidth)?.picture.offsetWidth || 64;
    const room = Math.max(1, Math.floor((area.width + GAP) / (width + GAP)));
    const isChosen = ({ band }) => band.classList.contains("chosen");
    const first = this.bands.toReversed().sort((a, b) => isChosen(b) - isChosen(a));
    const shown = this.bands.filter((each) => first.indexOf(each) < room);
    let least = 0;
    const lefts = shown.map(({ middle }) => {
      const left = Math.max(least, (middle / this.duration) * area.width - width / 2);
      least = left + width + GAP;
      return left;
    });
    let most = area.width - width;
    for (let n = lefts.length - 1; n >= 0; n -= 1) {
      lefts[n] = Math.min(lefts[n], most);
      most = lefts[n] - width - GAP;
    }
    for (const { picture } of this.bands) picture.hidden = true;
    shown.forEach(({ picture, track }, n) => {
      picture.hidden = false;
      picture.style.left = `${lefts[n] - (track.start / this.duration) * area.width}px`;
    });
  }
}

// Unbroken runs of scores: the line stops where nobody looked closely.
function linesOf({ times, scores }) {
  const lines = [[]];
  times.forEach((time, i) => {
    if (scores[i] === null) lines.push([]);
    else lines.at(-1).push([time, scores[i]]);
  });
  return lines.filter((line) => line.length);
}
