import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  findGoProgram,
  findOrBuildGoProgram,
  type GoProgram,
  runCommand,
} from "../../infra/kubernetes/build/go-programs.ts";

const actionlint: GoProgram = {
  sources: fileURLToPath(new URL("./", import.meta.url)),
  module: "rhysd/actionlint",
  name: "actionlint",
  files: ["actionlint"],
  build: (folder) =>
    runCommand(actionlint.sources, "go", "build", "-ldflags", "-s -w", "-o", join(folder, "actionlint"), "."),
};

/** Returns the linter for workflows of GitHub Actions, if it was built before. */
export const findActionlint = () => findGoProgram(actionlint);

export const buildActionlint = () => findOrBuildGoProgram(actionlint);
