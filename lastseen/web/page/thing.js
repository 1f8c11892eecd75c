// What to look for: up to eight pictures of the thing, each with a box around it. One is current: it is shown, and
// the next photo or box drawn in the video takes its place.

import { frameAddress, get, post, upload } from "./api.js";
import { Look } from "./look.js";
import { clock, make } from "./moments.js";
import { Pen } from "./pen.js";

const MOST = 8; // as many as the API takes

export class Thing {
  // `section` shows the picture small, `mark` large, to mark the thing in a photo; `changed()` after any change.
  constructor(section, mark, { changed }) {
    Object.assign(this, { section, mark, changed });
    this.looks = [];
    this.current = 0; // place in the list; its length: one is being added
    this.marking = false; // whether the photo is shown large
    this.frame = section.querySelector(".picture");
    this.whole = mark.querySelector("#whole");
    this.problem = section.querySelector("#photo-problem");
    this.status = section.querySelector("#photo-status");
    this.pen = new Pen(section.querySelector("canvas"), {
      done: (box) => {
        this.pen.activate(false);
        this.#drawn(box);
      },
      changed: () => this.#drawn(this.pen.box),
    });
    this.pen.picture = (pen, width, height) => this.look && pen.drawImage(this.look.image, 0, 0, width, height);
    for (const name of ["choose", "photograph"]) {
      const input = section.querySelector(`#${name}`);
      input.addEventListener("change", () => {
        this.takePictures([...input.files]);
        input.value = "";
      });
    }
    this.whole.addEventListener("change", () => {
      this.look.whole = this.whole.checked;
      if (this.look.whole) this.look.box = null;
      this.#select(this.current);
      this.pen.activate(!this.look.whole);
    });
    const on = (id, act) => document.querySelector(id).addEventListener("click", act);
    on("#clear", () => this.remove(this.current));
    on("#enlarge", () => this.enlarge());
    on("#add", () => this.add());
    on("#accept", () => this.accept());
    on("#next", () => {
      this.#select(this.unmarked);
      this.enlarge();
    });
    on("#fold", () => {
      this.fold();
      section.querySelector("#enlarge").focus();
    });
  }

  get look() {
    return this.looks[this.current];
  }

  get ready() {
    return this.looks.length > 0 && this.looks.every((look) => look.ready);
  }

  // As the API wants it.
  get asked() {
    return this.looks.map((look) => look.asked);
  }

  // The place of the first picture with nothing marked in it; -1 if there is none.
  get unmarked() {
    return this.looks.findIndex((look) => !look.ready);
  }

  // The first of the photos takes the place of the current picture; the others are added.
  async takePictures(files) {
    this.problem.textContent = "";
    const first = this.current;
    for (const [n, file] of files.entries()) {
      if (first + n >= MOST) {
        this.problem.textContent = `At most ${MOST} pictures can be given; ${file.name} was left out.`;
        break;
      }
      this.status.textContent = "Uploading the photo …";
      try {
        const info = await upload("/api/pictures", file, () => {}).done;
        const look = await Look.load({ picture: info.id }, `/api/pictures/${info.id}`, [info.width, info.height]);
        this.#put(n ? this.looks.length : this.current, look);
        this.#suggest(look, info.id).catch(() => {}); // without one a box is drawn by hand
      } catch (problem) {
        this.problem.textContent = problem.message;
      }
      this.status.textContent = "";
    }
    if (this.unmarked < 0) return;
    this.#select(this.unmarked);
    this.enlarge();
  }

  // Draw what a model takes for the thing, to be accepted or not.
  async #suggest(look, id) {
    this.settings ??= await get("/api/settings");
    if (!this.settings.suggestions) return;
    look.suggestion = (await post(`/api/pictures/${id}/suggestion`)).box;
    if (this.look === look) this.#select(this.current);
  }

  // Whether there was a suggestion, which is now the box.
  accept() {
    const { look } = this;
    if (!this.marking || !look?.suggestion || look.ready) return false;
    this.pen.done(look.suggestion);
    return true;
  }

  // The moment takes the place of the current picture. Fails if it cannot be shown.
  async takeMoment(video, time, box) {
    const where = `${video.name} at ${clock(time)}`;
    const size = [video.width, video.height];
    const look = await Look.load({ video: video.id, time }, frameAddress(video.id, time, 1280), size, { box, where });
    this.#put(this.current, look);
    this.fold();
  }

  // An empty place for another picture.
  add() {
    this.#select(this.looks.length);
    this.fold();
    this.section.querySelector("#choose").focus();
  }

  remove(place) {
    this.looks.splice(place, 1);
    this.#select(Math.max(0, Math.min(this.current - (place < this.current ? 1 : 0), this.looks.length - 1)));
    if (!this.look?.isPhoto) this.fold();
  }

  // Show the photo large; it can be drawn on at once.
  enlarge() {
    this.#place(true);
    this.pen.activate(!this.look.whole);
    this.mark.scrollIntoView({ block: "nearest" });
    this.pen.canvas.focus({ preventScroll: true });
  }

  // Show the picture small, beside the video.
  fold() {
    this.pen.activate(false);
    this.#place(false);
  }

  #put(place, look) {
    this.problem.textContent = "";
    this.looks[place] = look;
    this.#select(place);
  }

  #select(place) {
    this.current = place;
    const { look, pen } = this;
    const { width = 1, height = 1, box = null, suggestion = null } = look ?? {};
    Object.assign(pen, { width, height, box, before: box, suggestion });
    if (look) this.frame.style.setProperty("--aspect", look.width / look.height);
    this.whole.checked = look?.whole ?? false;
    this.#tell();
  }

  #place(large) {
    this.marking = large;
    const place = (large ? this.mark : this.section).querySelector(".place");
    if (this.frame.parentElement !== place) place.append(this.frame);
    this.#tell();
  }

  #drawn(box) {
    this.look.box = this.pen.box = box;
    if (box) this.look.whole = this.whole.checked = false;
    this.#tell();
  }

  #tell() {
    const find = (id) => this.section.querySelector(id);
    const { look } = this;
    const isAdding = !look && this.looks.length > 0;
    this.frame.hidden = !look;
    this.mark.hidden = !this.marking;
    find("#thing-about").hidden = !look;
    find("#thing-hint").hidden = Boolean(look) || isAdding;
    find("#add-hint").hidden = !isAdding;
    find("#enlarge").hidden = this.marking || !look?.isPhoto;
    find("#add").hidden = !this.ready || isAdding || this.looks.length >= MOST;
    document.querySelector("#suggested").hidden = !look?.suggestion || look.ready;
    document.querySelector("#next").hidden = !look?.ready || this.unmarked < 0;
    find("#thing-where").textContent = look ? look.where || wordsOf(look) : "";
    this.#list(isAdding);
    this.pen.paint();
    this.changed();
  }

  // Small pictures of all of them, if there are several.
  #list(isAdding) {
    const list = this.section.querySelector("#looks");
    list.hidden = this.looks.length + Number(isAdding) < 2;
    const items = (list.hidden ? [] : this.looks).map((look, place) => {
      const about = `Picture ${place + 1} of ${this.looks.length}${look.ready ? "" : ", nothing is marked yet"}`;
      const open = make("button", { type: "button", className: "look", title: about, "aria-label": about }, look.small());
      open.classList.toggle("unmarked", !look.ready);
      open.setAttribute("aria-pressed", String(place === this.current));
      open.addEventListener("click", () => {
        this.#select(place);
        if (this.marking || !look.ready) this.enlarge();
        if (!look.isPhoto) this.fold();
      });
      const remove = make("button", { type: "button", className: "remove", textContent: "×", "aria-label": `Remove picture ${place + 1}` });
      remove.addEventListener("click", () => this.remove(place));
      return make("li", {}, open, remove);
    });
    if (isAdding) items.push(make("li", { className: "empty", textContent: "?" }));
    list.replaceChildren(...items);
  }
}

function wordsOf(look) {
  if (look.whole) return "The whole picture is the thing.";
  return look.box ? "The thing is in the box." : "Nothing is marked yet.";
}
