// The videos: what is indexed, what is being read or uploaded, and how to add more.

import { get, post, remove, upload } from "./api.js";
import { day, duration, make } from "./moments.js";

export class Library {
  // `opened(video)` when one is chosen, `added(video)` when it has come; `changed()` after any change.
  constructor(section, { opened, added, changed }) {
    Object.assign(this, { section, opened, added, changed });
    this.videos = [];
    this.jobs = new Map(); // of videos, by the video
    this.uploads = new Set(); // { name, share, abort }, or { name, problem } when it failed
    this.problems = new Map(); // by the video: what could not be done with it
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
    this.pathProblem = this.form.querySelector("#path-problem");
    this.lookIntoFolders();
    const path = this.form.querySelector("#path");
    path.addEventListener("focus", () => this.lookIntoFolders());
    path.addEventListener("input", () => (this.pathProblem.textContent = ""));
  }

  // Whether a video is on its way, so that there is something to see.
  get busy() {
    return [...this.uploads].some((entry) => !entry.problem);
  }

  async refresh() {
    const { videos, max_upload } = await get("/api/videos");
    Object.assign(this, { videos, maxUpload: max_upload });
    this.draw();
    this.changed();
  }

  // What could be added by its path; folders may be large, so this is asked apart.
  async lookIntoFolders() {
    const folders = await get("/api/folders").catch((problem) => {
      this.pathProblem.textContent = problem.message;
      return [];
    });
    this.form.hidden = !folders.length;
    const paths = folders.flatMap((folder) => folder.videos.map((name) => make("option", { value: name })));
    this.section.querySelector("#paths").replaceChildren(...paths);
  }

  find(id) {
    return this.videos.find((video) => video.id === id);
  }

  // A job that reads a video has changed.
  async tell(job) {
    this.jobs.set(job.videos[0], job);
    this.draw();
    if (["waiting", "running"].includes(job.state)) return;
    await this.refresh();
    // A file that turned out to be damaged is not in the list any more.
    if (job.state === "failed" && !this.find(job.videos[0])) this.#note(job.title, job.message);
  }

  async upload(file) {
    if (this.maxUpload && file.size > this.maxUpload) {
      const most = (this.maxUpload / 2 ** 30).toFixed(1);
      this.#note(file.name, `${file.name} is larger than this server takes (${most} GiB, see --max-upload).`);
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
    this.changed();
    try {
      await this.#added(await running.done);
    } catch (problem) {
      if (problem.message) this.#note(file.name, problem.message);
    } finally {
      this.uploads.delete(entry);
      this.draw();
      this.changed();
    }
  }

  // A row that says what is wrong with a file, until it is dismissed or given again.
  #note(name, problem) {
    for (const entry of this.uploads) if (entry.problem && entry.name === name) this.uploads.delete(entry);
    this.uploads.add({ name, problem });
    this.draw();
    this.changed();
  }

  async #add(field) {
    this.pathProblem.textContent = "";
    try {
      await this.#added(await post("/api/videos", { path: field.value }));
      field.value = "";
    } catch (problem) {
      this.pathProblem.textContent = problem.message;
      field.focus();
    }
  }

  async #added({ video }) {
    await this.refresh();
    this.added(this.find(video.id) ?? video);
  }

  async #remove(video) {
    const kept = video.uploaded ? "The uploaded copy is deleted." : "The file stays where it is.";
    if (!window.confirm(`Forget ${video.name}? ${kept}`)) return;
    await this.#attempt(video, async () => {
      await remove(`/api/videos/${video.id}`);
      await this.refresh();
    });
  }

  async #attempt(video, act) {
    this.problems.delete(video.id);
    await act().catch((problem) => this.problems.set(video.id, problem.message));
    this.draw();
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
    const name = make("span", { className: "name", textContent: entry.name });
    if (entry.problem) {
      const dismiss = button("Dismiss", `dismiss ${entry.name}`, `Dismiss ${entry.name}`, () => {
        this.uploads.delete(entry);
        this.draw();
        this.changed();
      });
      return make("li", { className: "failed" }, name, make("p", { className: "problem", role: "alert", textContent: entry.problem }), dismiss);
    }
    const text = entry.share < 1 ? `Uploading, ${Math.round(100 * entry.share)} %` : "Checking";
    const bar = make("progress", { max: 1, value: entry.share, "aria-label": `Upload of ${entry.name}` });
    const stop = button("Cancel", `upload ${entry.name}`, `Cancel the upload of ${entry.name}`, entry.abort);
    return make("li", {}, name, bar, line(text, stop));
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
      const stop = button("Cancel", `cancel ${video.id}`, `Cancel reading ${video.name}`, () => this.#attempt(video, () => post(`/api/jobs/${job.id}/cancel`)));
      parts.push(make("progress", { max: 1, value: share, "aria-label": `Reading ${video.name}` }), line(text, stop));
    } else if (video.complete) {
      parts.push(line(`${duration(video.duration)}, ${video.file ? day(video.recorded_at, video.date_source) : "the file is gone"}`, forget));
    } else {
      const share = video.expected ? ` ${Math.round((100 * video.frames) / video.expected)} %` : "";
      const more = button("Go on", `go on ${video.id}`, `Go on reading ${video.name}`, () => {
        this.#attempt(video, () => post(`/api/videos/${video.id}/read`));
      });
      parts.push(line(`${duration(video.duration)}, read${share || " not yet"}`, more, forget));
    }
    const problem = this.problems.get(video.id) ?? (job?.state === "failed" ? job.message : "");
    if (problem) parts.push(make("p", { className: "problem", role: "alert", textContent: problem }));
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
