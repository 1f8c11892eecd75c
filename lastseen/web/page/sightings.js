// Every sighting, the latest first, each with a picture; one of them is chosen.

import { boxedFrame } from "./frame.js";
import { clock, make, middleOf } from "./moments.js";

export class Sightings {
  // `choose(number, track)`: the n-th video of the answer and a track of it.
  constructor(section, { choose }) {
    Object.assign(this, { section, choose });
    this.buttons = new Map(); // of the tracks
  }

  clear() {
    this.section.hidden = true;
    this.section.replaceChildren();
    this.buttons.clear();
  }

  show(answers) {
    this.clear();
    const rows = answers.answers.flatMap((seen, number) => seen.answer.tracks.map((track) => ({ seen, number, track })).reverse());
    if (rows.length < 2) return;
    const several = answers.answers.length > 1;
    const items = rows.map(({ seen, number, track }) => {
      const about = make(
        "span", { className: "about" },
        make("span", { className: "clock", textContent: `${clock(track.start)} to ${clock(track.end)}` }),
        several ? make("span", { className: "name", textContent: seen.name }) : null,
        make("span", { className: "muted", textContent: `score ${track.score.toFixed(2)}` }),
      );
      const picture = boxedFrame(seen, track, middleOf(track), { width: 240 });
      const button = make("button", { type: "button", onclick: () => this.choose(number, track) }, picture, about);
      this.buttons.set(track, button);
      return make("li", {}, button);
    });
    this.section.replaceChildren(make("h2", { textContent: `Seen ${rows.length} times` }), make("ul", { className: "list" }, ...items));
    this.section.hidden = false;
  }

  mark(chosen) {
    for (const [track, button] of this.buttons) {
      button.classList.toggle("chosen", track === chosen);
      button.setAttribute("aria-current", String(track === chosen));
    }
  }
}
