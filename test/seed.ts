import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { fileURLToPath } from "node:url";

// Runs before every test file. With POSTERN_SEED in the environment, generated values are the same in each run.
const { POSTERN_SEED: seed = "" } = process.env;
if (seed !== "") {
  if (!/^\d{1,9}$/.test(seed)) throw new Error(`POSTERN_SEED must be a number of at most nine digits, not "${seed}"`);
  const { default: fc } = await import("fast-check");
  fc.configureGlobal({ seed: Number(seed) });
}

// A developer's postern.yaml turns on other rules, so a unit test that reads it would fail for some developers. The upper
// tiers run commands in copies of the checkout, which have a postern.yaml of their own.
const config = fileURLToPath(new URL("../postern.yaml", import.meta.url));
const refuseConfig = (path: unknown) => {
  if (String(path) === config) throw new Error("a unit test must have a postern.yaml of its own, not the checkout's");
};
if (!/[\\/]test[\\/](account|aws|cel|cluster|local)[\\/]/.test(process.argv[1] ?? "")) {
  process.env.POSTERN_CONFIG ??= fileURLToPath(new URL("fixtures/no-rules.yaml", import.meta.url));
  const { readFileSync } = fs;
  const { readFile } = fs.promises;
  Object.assign(fs, {
    readFileSync: (...given: Parameters<typeof readFileSync>) => {
      refuseConfig(given[0]);
      return readFileSync(...given);
    },
  });
  Object.assign(fs.promises, {
    readFile: async (...given: Parameters<typeof readFile>) => {
      refuseConfig(given[0]);
      return readFile(...given);
    },
  });
  syncBuiltinESMExports();
}
