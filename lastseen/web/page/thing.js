// What to look for: a photo, or a moment of a video, and the box around the thing in it.

import { Problem, frameAddress, upload } from "./api.js";
import { clock } from "./moments.js";
import { Pen } from "./pen.js";

export class Thing {
  // `section` shows the picture small, `mark` large, to mark the thing in a photo; `changed()` after any change.
  constructor(section, mark, { changed, failed }) {
    Object.assign(this, { section, mark, changed, failed });
    this.source = null; // { picture } or { video, time }
    this.marking = false; // whether the photo is shown large
    this.frame = section.querySelector(".picture");
    this.image = null;
    this.whole = mark.querySelector("#whole"); // the whole picture is the thing
    this.pen = new Pen(section.querySelector("canvas"), {
      done: (box) => {
        this.pen.activate(false);
        this.pen.box = box;
        this.#drawn();
      },
      changed: () => this.#drawn(),
    });
    this.pen.picture = (pen, width, height) => this.image && pen.drawImage(this.image, 0, 0, width, height);
    for (const name of ["choose", "photograph"]) {
      const input = section.querySelector(`#${name}`);
      input.addEventListener("change", () => {
        if (input.files.length) this.takePicture(input.files[0]);
        input.value = "";
      });
    }
    this.whole.addEventListener("change", () => {
      this.pen.activate(!this.whole.checked);
      if (this.whole.checked) this.pen.box = this.pen.before = null;
      this.#tell();
    });
    section.querySelector("#clear").addEventListener("click", () => this.clear());
    section.querySelector("#enlarge").addEventListener("click", () => this.enlarge());
    mark.querySelector("#fold").addEventListener("click", () => {
      this.fold();
      section.querySelector("#enlarge").focus();
    });
  }

  get ready() {
    return this.source !== null && (this.pen.box !== null || (this.source.picture !== undefined && this.whole.checked));
  }

  // As the API wants it: without a box the whole picture is the thing.
  get look() {
    return { ...this.source, box: this.pen.box };
  }

  async takePicture(file) {
    try {
      const info = await upload("/api/pictures", file, () => {}).done;
      await this.#set({ picture: info.id }, `/api/pictures/${info.id}`, [info.width, info.height], null);
      this.enlarge();
    } catch (problem) {
      this.failed(problem);
    }
  }

  async takeMoment(video, time, box) {
    try {
      await this.#set({ video: video.id, time }, frameAddress(video.id, time, 1280), [video.width, video.height], box);
      this.where = `${video.name} at ${clock(time)}`;
      this.fold();
    } catch (problem) {
      this.failed(problem);
    }
  }

  clear() {
    this.source = this.image = this.pen.box = null;
    this.fold();
  }

  // Show the photo large; it can be drawn on at once.
  enlarge() {
    this.#place(true);
    this.pen.activate(!this.whole.checked);
    this.mark.scrollIntoView({ block: "nearest" });
    this.pen.canvas.focus({ preventScroll: true });
  }

  // Show the picture small, beside the video.
  fold() {
    this.pen.activate(false);
    this.#place(false);
  }

  #place(large) {
    this.marking = large;
    const place = (large ? this.mark : this.section).querySelector(".place");
    if (this.frame.parentElement !== place) place.append(this.frame);
    this.#tell();
  }

  #drawn() {
    if (this.pen.box) this.whole.checked = false;
    this.#tell();
  }

  async #set(source, address, [width, height], box) {
    const image = new Image();
    image.src = address;
    await image.decode().catch(() => {
      throw new Problem("The picture cannot be shown.");
    });
    Object.assign(this, { source, image, where: "" });
    Object.assign(this.pen, { width, height, box, before: box });
    this.whole.checked = false;
    this.frame.style.setProperty("--aspect", width / height);
  }

  #tell() {
    const find = (id) => this.section.querySelector(id);
    const there = this.source !== null;
    this.frame.hidden = !there;
    this.mark.hidden = !this.marking;
    find("#thing-about").hidden = !there;
    find("#thing-hint").hidden = there;
    find("#enlarge").hidden = this.marking || this.source?.picture === undefined;
    const advice = this.pen.box ? "The thing is in the box." : "Nothing is marked yet.";
    find("#thing-where").textContent = this.where || (this.whole.checked ? "The whole picture is the thing." : advice);
    this.pen.paint();
    this.changed();
  }
}
