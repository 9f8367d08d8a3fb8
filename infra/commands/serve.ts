import type { Command } from "../cli/command.ts";
import { serveRules, servingCommandOptions } from "../serve/serve.ts";

export default {
  summary: "Serves the rules of postern.yaml over HTTPS on this machine, as Lambda does.",
  options: servingCommandOptions,
  run: ({ options }) => serveRules(options),
} satisfies Command;
