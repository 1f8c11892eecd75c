// The videos: what is indexed, what is being read or uploaded, and how to add more.

import { get, post, remove, upload } from "./api.js";
import { day, duration, make } from "./moments.js";

export class Library {
  constructor(section, { opened, changed, failed, cancel }) {
    Object.assign(this, { section, opened, changed, failed, cancel });
    this.videos = [];
    this.jobs = new Map(); // of videos, by the video
    this.uploads = new Set(); // { name, share, abort }
    this.current = null;
    this.input = section.querySelector("#upload");
    for (const button of document.querySelectorAll("[data-upload]")) button.addEventListener("click", () => this.input.click());
    this.input.addEventListener("change", () => {
      for (const file of this.input.files) this.upload(file);
      this.input.value = "";
    });
    this.form = section.querySelector("#by-path");
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#add(this.form.querySelector("#path"));
    });
    this.lookIntoFolders().catch(failed);
    this.form.querySelector("#path").addEventListener("focus", () => this.lookIntoFolders().catch(failed));
  }

  async refresh() {
    const { videos, max_upload } = await get("/api/videos");
    Object.assign(this, { videos, maxUpload: max_upload });
    this.draw();
    this.changed();
  }

  // What could be added by its path; folders may be large, so this is asked apart.
  async lookIntoFolders() {
    const folders = await get("/api/folders");
    this.form.hidden = !folders.length;
    const paths = folders.flatMap((folder) => folder.videos.map((name) => make("option", { value: name })));
    this.section.querySelector("#paths").replaceChildren(...paths);
  }

  find(id) {
    return this.videos.find((video) => video.id === id);
  }

  tell(job) {
    this.jobs.set(job.videos[0], job);
    this.draw();
  }

  async upload(file) {
    if (this.maxUpload && file.size > this.maxUpload) {
      const most = (this.maxUpload / 2 ** 30).toFixed(1);
      this.failed(new Error(`${file.name} is larger than this server takes (${most} GiB, see --max-upload).`));
      return;
    }
    const entry = { name: file.name, share: 0 };
    const running = upload("/api/uploads", file, (share) => {
      entry.share = share;
      this.draw();
    });
    entry.abort = running.abort;
    this.uploads.add(entry);
    this.draw();
    try {
      await this.#added(await running.done);
    } catch (problem) {
      this.failed(problem);
    } finally {
      this.uploads.delete(entry);
      this.draw();
    }
  }

  async #add(field) {
    try {
      await this.#added(await post("/api/videos", { path: field.value }));
      field.value = "";
    } catch (problem) {
      this.failed(problem);
    }
  }

  async #added({ video }) {
    await this.refresh();
    this.opened(this.find(video.id) ?? video);
  }

  async #remove(video) {
    const kept = video.uploaded ? "The uploaded copy is deleted." : "The file stays where it is.";
    if (!window.confirm(`Forget ${video.name}? ${kept}`)) return;
    try {
      await remove(`/api/videos/${video.id}`);
      await this.refresh();
    } catch (problem) {
      this.failed(problem);
    }
  }

  async #goOn(video) {
    await post(`/api/videos/${video.id}/read`).catch(this.failed);
  }

  draw() {
    const list = this.section.querySelector("#videos");
    const focused = list.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    const rows = [...this.uploads].map((entry) => this.#uploading(entry));
    rows.push(...this.videos.map((video) => this.#row(video)));
    list.replaceChildren(...rows);
    if (focused) list.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  #uploading(entry) {
    const text = entry.share < 1 ? `Uploading, ${Math.round(100 * entry.share)} %` : "Checking";
    const bar = make("progress", { max: 1, value: entry.share, "aria-label": `Upload of ${entry.name}` });
    const stop = button("Cancel", `upload ${entry.name}`, `Cancel the upload of ${entry.name}`, entry.abort);
    return make("li", {}, make("span", { className: "name", textContent: entry.name }), bar, line(text, stop));
  }

  #row(video) {
    const job = this.jobs.get(video.id);
    const running = job && ["waiting", "running"].includes(job.state);
    const open = make("button", { type: "button", className: "name", textContent: video.name, onclick: () => this.opened(video) });
    open.dataset.key = `open ${video.id}`;
    open.disabled = !video.file;
    if (video.id === this.current) open.setAttribute("aria-current", "true");
    const parts = [open];
    const forget = button("Remove", `remove ${video.id}`, `Remove ${video.name}`, () => this.#remove(video));
    if (running) {
      const share = job.total ? job.done / job.total : 0;
      const left = job.left === null ? "" : `, ${duration(job.left)} left`;
      const text = job.state === "waiting" ? "Waiting to be read" : `Reading, ${Math.round(100 * share)} %${left}`;
      const stop = button("Cancel", `cancel ${video.id}`, `Cancel reading ${video.name}`, () => this.cancel(job.id));
      parts.push(make("progress", { max: 1, value: share, "aria-label": `Reading ${video.name}` }), line(text, stop));
    } else if (video.complete) {
      parts.push(line(`${duration(video.duration)}, ${video.file ? day(video.recorded_at) : "the file is gone"}`, forget));
    } else {
      const share = video.expected ? ` ${Math.round((100 * video.frames) / video.expected)} %` : "";
      const text = job?.state === "failed" ? job.message : `${duration(video.duration)}, read${share || " not yet"}`;
      const more = button("Go on", `go on ${video.id}`, `Go on reading ${video.name}`, () => this.#goOn(video));
      parts.push(line(text, more, forget));
    }
    return make("li", {}, ...parts);
  }
}

function line(text, ...buttons) {
  return make("div", { className: "line" }, make("span", { className: "muted grow", textContent: text }), ...buttons);
}

function button(text, key, label, onclick) {
  const made = make("button", { type: "button", className: "quiet", textContent: text, onclick });
  made.dataset.key = key;
  made.setAttribute("aria-label", label);
  return made;
}
