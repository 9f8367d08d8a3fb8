// Builds the module of Kubernetes' handlers, unless it was built before. `npm run kubernetes` runs this file.
import { buildModule } from "./module-program.ts";

const start = Date.now();
const { version, folder } = await buildModule();
process.stdout.write(`${version} after ${Math.round((Date.now() - start) / 1000)} s: ${folder}\n`);
