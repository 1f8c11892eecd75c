// The API as a page: what /openapi.json says, one section a request. FastAPI's own page would load scripts
// from elsewhere.

const METHODS = ["get", "post", "put", "patch", "delete"];

function element(tag, className, ...children) {
  const made = document.createElement(tag);
  made.className = className;
  made.append(...children);
  return made;
}

// A schema in a word or two: "integer", "one of json, csv", "Question", "list of number".
function kind(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.enum) return `one of ${schema.enum.join(", ")}`;
  if (schema.const !== undefined) return String(schema.const);
  const several = schema.anyOf ?? schema.oneOf;
  if (several) return several.map(kind).filter((each) => each !== "null").join(" or ");
  if (schema.type === "array") return `list of ${kind(schema.items) || "anything"}`;
  return schema.format ? `${schema.type} (${schema.format})` : (schema.type ?? "");
}

function rows(items) {
  return element("table", "", ...items.map(([name, type, about]) => element(
    "tr", "", element("th", "", element("code", "", name)), element("td", "muted", type), element("td", "", about),
  )));
}

function fields(name, schema) {
  const needed = new Set(schema.required ?? []);
  return Object.entries(schema.properties ?? {}).map(([field, about]) => [
    field, kind(about), [needed.has(field) ? "needed" : "", about.description ?? ""].filter(Boolean).join("; "),
  ]);
}

function request(method, path, described, schemas) {
  const section = element(
    "section", "", element("h2", "", element("code", "", `${method.toUpperCase()} ${path}`)),
    element("p", "", described.description ?? described.summary ?? ""),
  );
  const asked = (described.parameters ?? []).map((each) => [
    each.name, kind(each.schema), [`in the ${each.in}`, each.required ? "needed" : "", each.description ?? ""].filter(Boolean).join("; "),
  ]);
  for (const [type, content] of Object.entries(described.requestBody?.content ?? {})) {
    const name = kind(content.schema);
    asked.push(["body", type, schemas[name] ? name : ""]);
    if (schemas[name]) asked.push(...fields(name, schemas[name]));
  }
  if (asked.length) section.append(rows(asked));
  const answers = Object.entries(described.responses ?? {}).map(([status, about]) => `${status} ${about.description}`);
  section.append(element("p", "muted", `Answers: ${answers.join("; ")}`));
  return section;
}

const place = document.querySelector("#requests");
try {
  const api = await (await fetch("/openapi.json")).json();
  const schemas = api.components?.schemas ?? {};
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const method of METHODS.filter((each) => methods[each])) {
      place.append(request(method, path, methods[method], schemas));
    }
  }
} catch (error) {
  place.append(element("p", "", `The list cannot be read (${error.message}); is the server still running?`));
}
