import type { Signer } from "../keys/keys.ts";
import { engineRatios } from "./engines.ts";
import { policyGrowth } from "./growth.ts";
import { type Ratio, ratioOf } from "./ratios.ts";
import { scriptedStarts } from "./scripted.ts";

/** One thing that policies take over another. */
export interface Compared {
  what: string;
  ratio: Ratio;
  bar?: number;
}

/** How many there are, how they are evaluated beside kinitiras' own program, and how one starts that has a script. */
export const policyRatios = async (
  signer: Signer,
  folder: string,
  program: string | undefined,
  rounds: number,
): Promise<Compared[]> => [
  ...(await policyGrowth(rounds)),
  ...(program ? await engineRatios(program, rounds) : []),
  {
    what: "a cold start with a script, over cue-wasm by itself",
    ratio: ratioOf(await scriptedStarts(signer, folder, rounds)),
    bar: 0.7,
  },
];
