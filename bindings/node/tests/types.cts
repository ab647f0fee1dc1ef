// The same library, required.
import brooklet = require('brooklet')

const opened: Promise<brooklet.Store> = brooklet.open('store')
void opened.then(store => store.close())
