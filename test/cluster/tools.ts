import { parseArgs } from "node:util";
import { buildActionlint } from "../actionlint/actionlint.ts";
import { buildCelEvaluator, celMinors } from "../bench/peers/cel-go.ts";
import { buildBenchControllerRuntimeWebhook } from "../bench/peers/controller-runtime.ts";
import { buildHelmAndKustomize } from "../builders/builders.ts";
import { chooseOtherMinor } from "../choices.ts";
import { buildBinaries, buildScheduler, newestMinor } from "../control-plane/binaries.ts";
import { buildKubectl } from "../kubectl/kubectl.ts";
import { buildPodSecurityEvaluator } from "../parity/pod-security/evaluator.ts";
import { downloadPublishedManifests } from "./published.ts";

// Builds the programs that tests with an API server need, unless they were built before. With `--minor 1.33,1.34`, it
// builds only the control planes of these minors. Without this option, it builds the newest minor; if POSTERN_SEED is
// set, also the minor that the seed chooses.
const { minor } = parseArgs({ options: { minor: { type: "string" } } }).values;
const minors = minor?.split(",") ?? [newestMinor, ...(process.env.POSTERN_SEED ? [chooseOtherMinor()] : [])];
const builds = [
  ...minors.map((name) => () => buildBinaries(name)),
  ...(minor === undefined
    ? [
        buildScheduler,
        buildBenchControllerRuntimeWebhook,
        buildPodSecurityEvaluator,
        buildActionlint,
        buildKubectl,
        buildHelmAndKustomize,
        ...celMinors.map((name) => () => buildCelEvaluator(name)),
        downloadPublishedManifests,
      ]
    : []),
];
for (const build of builds) {
  const start = Date.now();
  const { program, version } = await build();
  process.stdout.write(`${version} after ${Math.round((Date.now() - start) / 1000)} s: ${program}\n`);
}
