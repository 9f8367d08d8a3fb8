import type { Command } from "../cli/command.ts";
import { consoleOptions, createConsole } from "../console/console.ts";
import { readPort, serveRules, servingCommandOptions } from "../serve/serve.ts";

export default {
  summary: "Serves the rules of postern.yaml over HTTPS on this machine, as Lambda does.",
  options: { ...servingCommandOptions, ...consoleOptions },
  run: ({ options }) =>
    serveRules(options, options.flag("no-console") ? undefined : createConsole(readPort(options, "console-port"))),
} satisfies Command;
