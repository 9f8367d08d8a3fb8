import type { Command } from "../cli/command.ts";
import { serveRules, servingOptions } from "../serve/serve.ts";

export default {
  summary: "Serves the rules of postern.yaml over HTTPS on this machine, as Lambda does.",
  options: servingOptions,
  run: ({ options }) => serveRules(options),
} satisfies Command;
