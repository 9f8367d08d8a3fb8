import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { isMap, type JsonMap } from "../../lib/json.ts";
import { minors } from "../control-plane/binaries.ts";

// Writes types.json and older-types.json of infra/apiserver/defaults: what main.go says in each minor of Kubernetes.
const program = fileURLToPath(new URL("default-types/main.go", import.meta.url));
const defaults = new URL("../../infra/apiserver/defaults/", import.meta.url);

const print = async (minor: string): Promise<JsonMap> => {
  const cwd = fileURLToPath(new URL(`../control-plane/${minor}/`, import.meta.url));
  const { stdout } = await promisify(execFile)("go", ["run", program], { cwd, maxBuffer: 2 ** 24 });
  return JSON.parse(stdout);
};

/** Returns the JSON merge patch that makes `before` of `after`. */
const buildMergePatch = (after: JsonMap, before: JsonMap): JsonMap =>
  Object.fromEntries(
    [...new Set([...Object.keys(after), ...Object.keys(before)])].sort().flatMap((key) => {
      const [now, then] = [after[key], before[key]];
      if (isMap(now) && isMap(then)) {
        const patch = buildMergePatch(now, then);
        return Object.keys(patch).length > 0 ? [[key, patch]] : [];
      }
      return now === then ? [] : [[key, then ?? null]];
    }),
  );

const write = (name: string, value: object) =>
  writeFile(new URL(name, defaults), `${JSON.stringify(value, null, 2)}\n`);

const [newest, ...others] = minors.toReversed();
let next = await print(newest ?? "");
await write("types.json", next);
const older: JsonMap = {};
for (const minor of others) {
  const types = await print(minor);
  older[minor] = buildMergePatch(next, types);
  next = types;
}
await write("older-types.json", older);
