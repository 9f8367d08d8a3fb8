import { parseArgs } from "node:util";
import { buildActionlint } from "../actionlint/actionlint.ts";
import { buildCelEvaluator, celMinors } from "../bench/peers/cel-go.ts";
import { buildBenchControllerRuntimeWebhook } from "../bench/peers/controller-runtime.ts";
import { buildBuilders } from "../builders/builders.ts";
import { chooseOtherMinor } from "../choices.ts";
import { buildBinaries, buildScheduler, newestMinor } from "../control-plane/binaries.ts";
import { buildKubectl } from "../kubectl/kubectl.ts";
import { buildPodSecurityEvaluator } from "../parity/pod-security/evaluator.ts";
import { downloadPublishedManifests } from "./published.ts";

// Builds what tests with an API server need, unless it was built before. `--minor 1.33,1.34` builds only the control
// planes of these minors; without it, a run with a seed also needs the minor that its seed chooses.
const { minor } = parseArgs({ options: { minor: { type: "string" } } }).values;
const minors = minor?.split(",") ?? [newestMinor, ...(process.env.POSTERN_SEED ? [chooseOtherMinor()] : [])];
const builds = [
  ...minors.map((one) => () => buildBinaries(one)),
  ...(minor === undefined
    ? [
        buildScheduler,
        buildBenchControllerRuntimeWebhook,
        buildPodSecurityEvaluator,
        buildActionlint,
        buildKubectl,
        buildBuilders,
        ...celMinors.map((one) => () => buildCelEvaluator(one)),
        downloadPublishedManifests,
      ]
    : []),
];
for (const build of builds) {
  const start = Date.now();
  const { program, version } = await build();
  process.stdout.write(`${version} after ${Math.round((Date.now() - start) / 1000)} s: ${program}\n`);
}
