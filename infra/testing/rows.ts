import { readFileSync } from "node:fs";
import { parse } from "yaml";

/** Returns the tables of a test: the YAML file beside it with the same name. Pass `import.meta.filename`. */
export const readRows = <T>(testFile: string): T =>
  parse(readFileSync(testFile.replace(/\.ts$/, ".yaml"), "utf8"), { merge: true });
