import { readFileSync } from "node:fs";
import { parse } from "yaml";

/** Reads the YAML file beside a test file (`import.meta.filename`): `x.test.yaml` for `x.test.ts`; or a YAML file. */
export const readRows = <T>(testFile: string): T =>
  parse(readFileSync(testFile.replace(/\.ts$/, ".yaml"), "utf8"), { merge: true });
