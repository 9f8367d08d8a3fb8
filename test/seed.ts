// Before every test file: with POSTERN_SEED in the environment, laws over random values are asked the same again.
const { POSTERN_SEED: seed = "" } = process.env;
if (seed !== "") {
  if (!/^\d{1,9}$/.test(seed)) throw new Error(`POSTERN_SEED must be a number of at most nine digits, not "${seed}"`);
  const { default: fc } = await import("fast-check");
  fc.configureGlobal({ seed: Number(seed) });
}
