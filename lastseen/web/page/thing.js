// What to look for: a picture, or a moment of a video, and the box around the thing in it.

import { Problem, frameAddress, upload } from "./api.js";
import { clock } from "./moments.js";
import { Pen } from "./pen.js";

export class Thing {
  constructor(section, { changed, failed }) {
    Object.assign(this, { section, changed, failed });
    this.source = null; // { picture } or { video, time }
    this.frame = section.querySelector(".picture");
    this.image = null;
    this.pen = new Pen(section.querySelector("canvas"), {
      done: (box) => {
        this.pen.activate(false);
        this.pen.box = box;
        this.#tell();
      },
    });
    this.pen.picture = (pen, width, height) => this.image && pen.drawImage(this.image, 0, 0, width, height);
    for (const name of ["choose", "photograph"]) {
      const input = section.querySelector(`#${name}`);
      input.addEventListener("change", () => {
        if (input.files.length) this.takePicture(input.files[0]);
        input.value = "";
      });
    }
    section.querySelector("#clear").addEventListener("click", () => this.clear());
  }

  get ready() {
    return this.source !== null && (this.source.picture !== undefined || this.pen.box !== null);
  }

  // As the API wants it.
  get look() {
    return { ...this.source, box: this.pen.box };
  }

  async takePicture(file) {
    try {
      const info = await upload("/api/pictures", file, () => {}).done;
      await this.#set({ picture: info.id }, `/api/pictures/${info.id}`, [info.width, info.height], null);
    } catch (problem) {
      this.failed(problem);
    }
  }

  async takeMoment(video, time, box) {
    try {
      await this.#set({ video: video.id, time }, frameAddress(video.id, time, 1280), [video.width, video.height], box);
      this.where = `${video.name} at ${clock(time)}`;
      this.#tell();
    } catch (problem) {
      this.failed(problem);
    }
  }

  clear() {
    this.source = this.image = this.pen.box = null;
    this.#tell();
  }

  async #set(source, address, [width, height], box) {
    const image = new Image();
    image.src = address;
    await image.decode().catch(() => {
      throw new Problem("The picture cannot be shown.");
    });
    Object.assign(this, { source, image, where: "" });
    Object.assign(this.pen, { width, height, box });
    this.frame.style.setProperty("--aspect", width / height);
    this.#tell();
  }

  #tell() {
    const find = (id) => this.section.querySelector(id);
    const there = this.source !== null;
    this.frame.hidden = !there;
    find("#thing-about").hidden = !there;
    find("#thing-hint").hidden = there;
    const advice = this.pen.box ? "The thing is in the box." : "Much else in the picture? Draw a box around the thing.";
    find("#thing-where").textContent = this.where || advice;
    this.pen.paint();
    this.changed();
  }
}
