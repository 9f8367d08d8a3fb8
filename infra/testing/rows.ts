import { readFileSync } from "node:fs";
import { parse } from "yaml";

/** Reads the YAML file beside a test file: `x.test.yaml` for `x.test.ts`. Pass `import.meta.filename`. */
export const readRows = <T>(testFile: string): T =>
  parse(readFileSync(testFile.replace(/\.ts$/, ".yaml"), "utf8"), { merge: true });
