import type { Command } from "../cli/command.ts";
import { consoleOptions, createConsole } from "../console/console.ts";
import { serveRules, servingCommandOptions } from "../serve/serve.ts";

export default {
  summary: "Serves the rules of postern.yaml over HTTPS on this machine, as Lambda does.",
  options: { ...servingCommandOptions, ...consoleOptions },
  run: ({ options }) =>
    serveRules(options, options.flag("no-console") ? undefined : createConsole(options.number("console-port"))),
} satisfies Command;
