import type { Signer } from "../keys/keys.ts";
import { measurePolicyCounts } from "./policy-counts.ts";
import { measureEngines } from "./policy-engines.ts";
import { type Result, ratioOf } from "./ratios.ts";
import { scriptedStarts } from "./script-starts.ts";

/** Measures how many policies there are, their evaluation beside kinitiras' own program, and a start with a script. */
export const measurePolicies = async (
  signer: Signer,
  folder: string,
  program: string | undefined,
  rounds: number,
): Promise<Result[]> => [
  ...(await measurePolicyCounts(rounds)),
  ...(program ? await measureEngines(program, rounds) : []),
  {
    what: "a cold start with a script, over cue-wasm by itself",
    ratio: ratioOf(await scriptedStarts(signer, folder, rounds)),
    bar: 0.7,
  },
];
