/** Reports whether an error has one of these names. Errors of AWS have names such as ResourceNotFoundException. */
export const isErrorNamed = (error: unknown, ...names: string[]): boolean =>
  error instanceof Error && names.includes(error.name);

/** Returns a handler for `catch`: it returns a value for an error of this name, and throws any other error. */
export const createFallbackForErrorNamed =
  <T>(name: string, value: T) =>
  (error: unknown): T => {
    if (isErrorNamed(error, name)) return value;
    throw error;
  };
