// Requests to this server, and nothing else.

export class Problem extends Error {}

export async function get(path) {
  return answer(await fetch(path));
}

export async function post(path, body) {
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  return answer(await fetch(path, { method: "POST", headers, body: body === undefined ? undefined : JSON.stringify(body) }));
}

export async function remove(path) {
  return answer(await fetch(path, { method: "DELETE" }));
}

async function answer(response) {
  if (response.status === 204) return null;
  const data = await response.json().catch(() => ({}));
  if (!response.ok) throw new Problem(sentence(data.detail || `the server said ${response.status}`));
  return data;
}

// A file as the body of a request, with the date it has here; `progress` gets a share from 0 to 1.
// Returns { done: Promise, abort }.
export function upload(path, file, progress) {
  const request = new XMLHttpRequest();
  const done = new Promise((resolve, reject) => {
    request.upload.addEventListener("progress", (event) => {
      if (event.lengthComputable) progress(event.loaded / event.total);
    });
    request.addEventListener("load", () => {
      const data = parsed(request.responseText);
      if (request.status < 300) resolve(data);
      else reject(new Problem(sentence(data.detail || `the server said ${request.status}`)));
    });
    request.addEventListener("error", () => reject(new Problem("The upload broke off. Is the server still running?")));
    request.addEventListener("abort", () => reject(new Problem("")));
    const written = file.lastModified ? `&written=${file.lastModified / 1000}` : "";
    request.open("POST", `${path}?name=${encodeURIComponent(file.name || "picture")}${written}`);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.send(file);
  });
  return { done, abort: () => request.abort() };
}

// Calls `tell` with each job whenever it changes; `opened` at every (new) connection, `lost` when it broke.
export function follow(tell, opened, lost) {
  const events = new EventSource("/api/events");
  events.addEventListener("open", opened);
  events.addEventListener("error", () => {
    lost();
    // Browsers try again by themselves, but not after a refusal, as when too many pages are open.
    if (events.readyState === EventSource.CLOSED) setTimeout(() => follow(tell, opened, lost), 5000);
  });
  events.addEventListener("message", (event) => tell(JSON.parse(event.data)));
}

export const frameAddress = (video, time, width) => `/api/videos/${video}/frame?time=${time.toFixed(3)}&width=${width}`;

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

// A sentence begins with a capital letter, but a file keeps its name.
function sentence(text) {
  if (!/^[a-z]+[ ,;:]/.test(text)) return text;
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}
