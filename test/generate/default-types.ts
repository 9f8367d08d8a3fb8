import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { isMap, type JsonMap } from "../../lib/json.ts";
import { minors } from "../control-plane/binaries.ts";

// Writes types.json and older-types.json of infra/apiserver/defaults: what main.go says in each minor of Kubernetes.
const program = fileURLToPath(new URL("default-types/main.go", import.meta.url));
const defaults = new URL("../../infra/apiserver/defaults/", import.meta.url);

const readDefaultTypes = async (minor: string): Promise<JsonMap> => {
  const cwd = fileURLToPath(new URL(`../control-plane/${minor}/`, import.meta.url));
  const { stdout } = await promisify(execFile)("go", ["run", program], { cwd, maxBuffer: 2 ** 24 });
  return JSON.parse(stdout);
};

/** Returns the JSON merge patch that changes `source` into `result`. */
const buildMergePatch = (source: JsonMap, result: JsonMap): JsonMap => {
  const patch: JsonMap = {};
  for (const key of [...new Set([...Object.keys(source), ...Object.keys(result)])].sort()) {
    const [oldValue, newValue] = [source[key], result[key]];
    if (isMap(oldValue) && isMap(newValue)) {
      const inner = buildMergePatch(oldValue, newValue);
      if (Object.keys(inner).length > 0) patch[key] = inner;
    } else if (oldValue !== newValue) patch[key] = newValue ?? null;
  }
  return patch;
};

const write = (name: string, value: object) =>
  writeFile(new URL(name, defaults), `${JSON.stringify(value, null, 2)}\n`);

const [newest, ...olderMinors] = minors.toReversed();
let newerTypes = await readDefaultTypes(newest ?? "");
await write("types.json", newerTypes);
const patches: JsonMap = {};
for (const minor of olderMinors) {
  const types = await readDefaultTypes(minor);
  patches[minor] = buildMergePatch(newerTypes, types);
  newerTypes = types;
}
await write("older-types.json", patches);
