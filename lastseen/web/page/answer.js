// The answer: when, where, the moments, every sighting, and files of it.

import { frameAddress } from "./api.js";
import { boxAt, clock, date, duration, make, momentsOf } from "./moments.js";

const MOMENTS = 8;
const FILES = [
  ["Picture", "/picture.jpg"],
  ["Filmstrip", "/filmstrip.jpg"],
  ["Film", "/film.mp4"],
  ["Report", "/report.html"],
  ["JSON", "?format=json"],
  ["CSV", "?format=csv"],
  ["COCO", "?format=coco"],
  ["MOT", "?format=mot"],
  ["WebVTT", "?format=vtt"],
  ["Label Studio", "?format=label-studio"],
  ["CVAT", "?format=cvat"],
];

export class AnswerView {
  // `choose(number, track)`: show this video of the answer and this track of it.
  constructor({ answer, filmstrip, sightings }, { choose, guess, seek }) {
    Object.assign(this, { section: answer, filmstrip, sightings, choose, guess, seek });
  }

  clear() {
    for (const section of [this.section, this.filmstrip, this.sightings]) {
      section.hidden = true;
      section.replaceChildren();
    }
  }

  // The headline is of the latest sighting, the files are of the n-th video.
  show(job, answers, number, guessing) {
    const latest = answers.answers[0];
    const track = latest?.answer.tracks.at(-1) ?? null;
    this.section.replaceChildren(...this.#headline(answers, latest, track, guessing));
    this.section.hidden = false;
    this.filmstrip.hidden = true;
    this.#list(job, answers, number, Boolean(track || guessing));
  }

  #headline(answers, seen, track, guessing) {
    const parts = [];
    const searched = `Searched ${duration(answers.seconds)} of video.`;
    const missing = answers.incomplete.length ? ` ${answers.incomplete.join(", ")}: only the part read so far.` : "";
    if (track) {
      parts.push(make("p", { className: "kicker", textContent: "Last seen at" }));
      parts.push(make("p", { className: "moment" }, make("mark", { textContent: clock(track.end) })));
      parts.push(make("p", { className: "large", textContent: `in ${seen.name}` }));
      const span = `In view from ${clock(track.start)} to ${clock(track.end)}, score ${track.score.toFixed(2)}.`;
      const boxes = seen.steps.includes("mask") ? " Boxes by masks." : "";
      const rest = `${boxes}${seen.left_out && ` ${seen.left_out}`}${missing}`;
      parts.push(make("p", { className: "muted", textContent: `${date(seen.seen_at)}. ${span}${rest}` }));
      return parts;
    }
    parts.push(make("p", { className: "moment", textContent: "Not seen." }));
    const best = seen?.answer.best_guess;
    if (best && guessing) {
      const score = `score ${best.score.toFixed(2)}, under ${answers.threshold.toFixed(2)}`;
      const text = `The best guess is ${clock(best.end)} in ${seen.name} (${score}). It is probably something else.`;
      parts.push(make("p", { className: "large", textContent: text }));
    } else {
      parts.push(make("p", { className: "muted", textContent: searched + missing }));
      if (best) parts.push(make("button", { type: "button", id: "guess", textContent: "Show the best guess", onclick: this.guess }));
    }
    return parts;
  }

  showMoments(seen, track, isGuess) {
    const size = { width: seen.answer.width, height: seen.answer.height };
    const shown = momentsOf(track, MOMENTS).map((time) => {
      const button = make("button", { type: "button", className: "frame", onclick: () => this.seek(time) });
      button.setAttribute("aria-label", `The moment at ${clock(time)}`);
      const image = make("img", { src: frameAddress(seen.video, time, 400), alt: "", loading: "lazy", ...size });
      const box = boxAt(track, time);
      button.append(make("span", { className: "boxed" }, image, box ? outline(size, box, isGuess) : null));
      button.append(make("span", { className: "clock", textContent: clock(time) }));
      return button;
    });
    this.filmstrip.replaceChildren(...shown);
    this.filmstrip.hidden = false;
  }

  #list(job, answers, number, drawn) {
    const parts = [];
    const rows = answers.answers.flatMap((seen, n) => seen.answer.tracks.map((track) => ({ seen, n, track })).reverse());
    if (rows.length > 1) {
      const several = answers.answers.length > 1;
      const items = rows.map(({ seen, n, track }, i) => {
        const span = `${clock(track.start)} to ${clock(track.end)}`;
        const text = `${span}${several ? `, ${seen.name}` : ""}`;
        const score = make("span", { className: "muted", textContent: `score ${track.score.toFixed(2)}` });
        const button = make("button", { type: "button", onclick: () => this.choose(n, track) }, text, score);
        if (i === 0) button.classList.add("chosen");
        return make("li", {}, button);
      });
      parts.push(make("h2", { textContent: `Seen ${rows.length} times` }), make("ul", { className: "list" }, ...items));
    }
    if (drawn) {
      const links = FILES.map(([name, rest]) =>
        make("a", { href: `/api/jobs/${job}/answers/${number}${rest}`, download: "", textContent: name }),
      );
      parts.push(make("details", {}, make("summary", { textContent: "Save the answer" }), make("div", { className: "row" }, ...links)));
    }
    this.sightings.replaceChildren(...parts);
    this.sightings.hidden = !parts.length;
  }
}

function outline({ width, height }, [x1, y1, x2, y2], isGuess) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("aria-hidden", "true");
  for (const name of ["rim", isGuess ? "guess" : "answer"]) {
    const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    const place = { class: name, x: x1, y: y1, width: Math.max(1, x2 - x1), height: Math.max(1, y2 - y1) };
    for (const [key, value] of Object.entries(place)) rect.setAttribute(key, value);
    svg.append(rect);
  }
  return svg;
}
