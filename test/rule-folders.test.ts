import assert from "node:assert/strict";
import { existsSync, globSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { dirname, join, relative, sep } from "node:path";
import { it } from "node:test";
import { fileURLToPath } from "node:url";

const functions = fileURLToPath(new URL("../functions", import.meta.url));
const files = globSync("*/**/*.ts", { cwd: functions }).map((file) => file.split(sep).join("/"));

/** Reports whether a rule's file could import this module in a user's project, which has the package postern. */
const canImport = (file: string, specifier: string): boolean => {
  if (specifier.startsWith("node:")) return true;
  if (specifier.startsWith("postern/")) return existsSync(fileURLToPath(import.meta.resolve(specifier)));
  const ruleFolder = join(functions, String(file.split("/")[0]));
  const imported = join(functions, dirname(file), specifier);
  return specifier.startsWith(".") && !relative(ruleFolder, imported).startsWith("..") && existsSync(imported);
};

it("a rule's folder imports only its own files, postern/… and node:, so a project can copy the folder", async () => {
  assert.ok(files.length > 100);
  const refused = await Promise.all(
    files.map(async (file) => {
      const text = await readFile(join(functions, file), "utf8");
      const specifiers = [...text.matchAll(/\b(?:from|import)\s*\(?\s*"([^"]+)"/g)].map(([, found = ""]) => found);
      return specifiers.filter((specifier) => !canImport(file, specifier)).map((found) => `${file}: ${found}`);
    }),
  );
  assert.deepEqual(refused.flat(), []);
});
