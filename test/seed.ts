// Runs before every test file. With POSTERN_SEED in the environment, generated values are the same in each run.
const { POSTERN_SEED: seed = "" } = process.env;
if (seed !== "") {
  if (!/^\d{1,9}$/.test(seed)) throw new Error(`POSTERN_SEED must be a number of at most nine digits, not "${seed}"`);
  const { default: fc } = await import("fast-check");
  fc.configureGlobal({ seed: Number(seed) });
}
