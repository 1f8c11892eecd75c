// The questions that were asked: their pictures, the answers in a line, and a way back to each.

import { get, remove } from "./api.js";
import { make, when } from "./moments.js";

const FEW = 5; // are shown at first

export class History {
  // `address(id)` is the address of a question; `forgotten(id)` when it is no longer there.
  constructor(section, { address, forgotten }) {
    Object.assign(this, { section, address, forgotten });
    this.questions = [];
    this.current = null; // id of the one that is shown
    this.problem = section.querySelector("#history-problem");
    this.isAll = false;
    this.more = section.querySelector("#more");
    this.more.addEventListener("click", () => {
      this.isAll = true;
      this.draw();
    });
  }

  async refresh() {
    const before = this.questions;
    this.questions = await get("/api/questions");
    this.draw();
    const there = new Set(this.questions.map(({ id }) => id));
    for (const { id } of before) if (!there.has(id)) this.forgotten(id);
  }

  draw() {
    const shown = this.isAll ? this.questions : this.questions.slice(0, FEW);
    const list = this.section.querySelector("ul");
    const focused = list.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    list.replaceChildren(...shown.map((question) => this.#row(question)));
    if (focused) list.querySelector(`[data-key="${focused}"]`)?.focus();
    this.more.hidden = shown.length === this.questions.length;
    this.more.textContent = `Show all ${this.questions.length}`;
    this.section.hidden = !this.questions.length && !this.problem.textContent;
  }

  say(problem) {
    this.problem.textContent = problem?.message ?? "";
    this.draw();
  }

  #row({ id, asked_at, looks, words, name, has_thumbnail, state }) {
    const picture = (address, name) => make("img", { src: `/api/questions/${id}/${address}`, alt: "", loading: "lazy", className: name });
    const several = looks > 1 ? `, ${looks} pictures` : "";
    const about = make(
      "span", { className: "about" },
      make("span", { textContent: state === "done" ? words.replace(/, score [\d.]+$/, "") : "Searching …" }),
      make("span", { className: "muted", textContent: `${name ? `${name}, ` : ""}${when(asked_at)}${several}` }),
    );
    const thumbnail = has_thumbnail ? picture("thumbnail.jpg", "thumbnail") : null;
    const link = make("a", { href: this.address(id) }, picture("pictures/0.jpg?box=true", "thumbnail"), about, thumbnail);
    link.dataset.key = `open ${id}`;
    if (id === this.current) link.setAttribute("aria-current", "true");
    const forget = make("button", { type: "button", className: "quiet", textContent: "×" });
    forget.setAttribute("aria-label", `Forget the question of ${when(asked_at)}`);
    forget.dataset.key = `forget ${id}`;
    forget.addEventListener("click", () => this.#forget(id));
    return make("li", {}, link, state === "done" ? forget : null);
  }

  async #forget(id) {
    if (!window.confirm("Forget this question, its pictures and its answer?")) return;
    try {
      await remove(`/api/questions/${id}`);
      this.say(null);
      await this.refresh();
    } catch (problem) {
      this.say(problem);
    }
  }
}
