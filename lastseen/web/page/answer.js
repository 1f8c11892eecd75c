// The answer: when and where, as a headline that follows the chosen sighting, and the moments of it.

import { boxedFrame } from "./frame.js";
import { clock, date, duration, make, middleOf, momentsOf } from "./moments.js";
import { actions } from "./save.js";

const MOMENTS = 8;
// As in docs/cookbook.md, in words of the page.
const TIPS = [
  "Give the whole photo, not a crop, and draw the box close around the thing.",
  "Add another picture of it, from another side.",
  "Draw the box in the video itself, at a moment where you see the thing.",
  "Ask on the command line with a lower threshold, and expect more wrong answers.",
];

export class AnswerView {
  // `guess()` when the best guess is to be shown, `seek(time)` when a moment is.
  constructor({ answer, filmstrip }, { guess, seek }) {
    Object.assign(this, { section: answer, filmstrip, guess, seek });
  }

  clear() {
    for (const section of [this.section, this.filmstrip]) {
      section.hidden = true;
      section.replaceChildren();
    }
  }

  // `track` of the n-th video of the answers; null: not seen, and no guess is shown.
  show({ job, answers, number, track, isGuess }) {
    const seen = answers.answers[number];
    const isOpen = this.section.querySelector("details")?.open;
    const parts = [askedWith(job, answers)];
    parts.push(...(answers.found ? this.#seen(answers, number, track) : this.#notSeen(answers, seen, track)));
    if (track && !answers.preliminary) parts.push(actions({ job, number, seen, track, isGuess, words: wordsOf(seen, track, isGuess) }));
    this.section.replaceChildren(...parts);
    if (isOpen && track && !answers.preliminary) this.section.querySelector("details").open = true;
    this.section.hidden = false;
    this.filmstrip.hidden = !track;
    if (track) this.#moments(seen, track, isGuess);
  }

  #seen(answers, number, track) {
    const seen = answers.answers[number];
    const latest = answers.answers[0].answer.tracks.at(-1);
    const isLatest = track === latest;
    const ends = track === seen.answer.tracks.at(-1) && seen.still_in_view ? `, ${stillWords(seen)}` : "";
    const about = [
      `${date(seen.recorded_at, track.end, seen.date_source)}.`,
      `In view from ${clock(track.start)} to ${clock(track.end)}, score ${track.score.toFixed(2)}.`,
      seen.steps.includes("mask") ? "Boxes by masks." : "",
      isLatest ? "" : `Last seen at ${clock(latest.end)}${number ? ` in ${answers.answers[0].name}` : ""}.`,
      seen.left_out,
      missing(answers),
    ];
    return [
      kicker(isLatest ? "Last seen" : "Also seen", answers.preliminary),
      make("p", { className: "moment" }, make("mark", { textContent: clock(track.end) })),
      make("p", { className: "large", textContent: `in ${seen.name}${ends}` }),
      make("p", { className: "muted", textContent: about.filter(Boolean).join(" ") }),
    ];
  }

  #notSeen(answers, seen, track) {
    const searched = `Searched ${duration(answers.seconds)} of video. ${missing(answers)}`;
    if (answers.preliminary) return [kicker("Not seen", true), make("p", { className: "muted", textContent: searched })];
    const tips = make("ol", {}, ...TIPS.map((text) => make("li", { textContent: text })));
    const parts = [
      make("p", { className: "moment", textContent: "Not seen." }),
      make("p", { className: "muted", textContent: searched }),
    ];
    const best = seen?.answer.best_guess;
    if (best) {
      const score = `Score ${best.score.toFixed(2)}, under ${answers.threshold.toFixed(2)}. It is probably something else.`;
      const text = make(
        "span", { className: "about" },
        make("span", { className: "clock", textContent: `The best guess is ${clock(best.end)} in ${seen.name}` }),
        make("span", { className: "muted", textContent: score }),
        track ? null : make("span", { className: "link", textContent: "Show it in the video" }),
      );
      const picture = boxedFrame(seen, best, middleOf(best), { width: 320, isGuess: true });
      parts.push(make("button", { type: "button", id: "guess", onclick: this.guess }, picture, text));
    }
    return [...parts, make("div", { className: "tips" }, make("h2", { textContent: "Is it there all the same?" }), tips)];
  }

  #moments(seen, track, isGuess) {
    const shown = momentsOf(track, MOMENTS).map((time) => {
      const button = make("button", { type: "button", className: "frame", onclick: () => this.seek(time) });
      button.setAttribute("aria-label", `The moment at ${clock(time)}`);
      button.append(boxedFrame(seen, track, time, { isGuess }), make("span", { className: "clock", textContent: clock(time) }));
      return button;
    });
    this.filmstrip.replaceChildren(...shown);
  }
}

const missing = ({ incomplete }) => (incomplete.length ? `${incomplete.join(", ")}: only the part read so far.` : "");

// As `still_words` of lastseen/words.py.
function stillWords({ curve, answer }) {
  if (curve.searched > curve.duration - 1 / answer.tracks[0].fps) return "still in view when the video ends";
  return `still in view where the search ends (${clock(curve.searched)})`;
}

// A preliminary answer says so.
function kicker(words, preliminary) {
  if (!preliminary) return make("p", { className: "kicker", textContent: `${words} at` });
  const badge = make("span", { className: "badge", textContent: "preliminary" });
  return make("p", { className: "kicker" }, `${words} so far `, badge);
}

// The pictures that the question was asked with, each with its box.
function askedWith(job, { pictures }) {
  const shown = Array.from({ length: pictures }, (_, n) => {
    const about = `Picture ${n + 1} that was asked with`;
    return make("img", { src: `/api/questions/${job}/pictures/${n}.jpg?box=true`, alt: about });
  });
  return make("div", { className: "asked" }, make("span", { className: "muted", textContent: "Asked with" }), ...shown);
}

function wordsOf(seen, track, isGuess) {
  const place = `${clock(track.end)} in ${seen.name}`;
  return isGuess ? `Not seen; the best guess is ${place}.` : `Seen at ${place}.`;
}
